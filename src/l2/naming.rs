//! From a key to an object's name and path, and back.
//!
//! A name is `<model>@<rank>@<group>@<hash>[@<salt>]`, or without the group in the older layout.
//! The object's path is that name, percent-encoded to `A-Z a-z 0-9 _ . - ~`, below a prefix which is
//! never encoded.

use std::fmt;

use object_store::path::Path;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use super::key::{KeyError, ObjectKey, from_hex, to_hex};

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'_')
    .remove(b'.')
    .remove(b'-')
    .remove(b'~');

/// Which fields an object's name has.
///
/// Four fields can be a grouped name without a salt or an ungrouped one with a salt, so a reader
/// must know which layout a pool was written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum KeyLayout {
    /// `<model>@<rank>@<hash>[@<salt>]`. Keys of a group other than 0 have no name here.
    #[default]
    Ungrouped,
    /// `<model>@<rank>@<group>@<hash>[@<salt>]`, as LMCache writes since 0.5.6.
    Grouped,
}

impl fmt::Display for KeyLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ungrouped => "ungrouped",
            Self::Grouped => "grouped",
        })
    }
}

impl ObjectKey {
    /// The object's name, not yet percent-encoded.
    ///
    /// Numbers are lower-case hex: the rank padded to eight digits, the group not padded.
    ///
    /// # Errors
    ///
    /// [`KeyError::GroupInUngroupedLayout`] if the layout cannot tell this key from another.
    pub fn object_name(&self, layout: KeyLayout) -> Result<String, KeyError> {
        match layout {
            KeyLayout::Grouped => Ok(self.grouped_name()),
            KeyLayout::Ungrouped if self.object_group_id() == 0 => Ok(self.name("")),
            KeyLayout::Ungrouped => Err(KeyError::GroupInUngroupedLayout {
                object_group_id: self.object_group_id(),
            }),
        }
    }

    /// The object's name, percent-encoded: one path segment, whatever the model's name holds.
    ///
    /// # Errors
    ///
    /// As [`object_name`](Self::object_name).
    pub fn encoded_name(&self, layout: KeyLayout) -> Result<String, KeyError> {
        Ok(utf8_percent_encode(&self.object_name(layout)?, ESCAPED).to_string())
    }

    /// Reads a name that [`object_name`](Self::object_name) formed in the same layout.
    ///
    /// # Errors
    ///
    /// [`KeyError::Name`] for any other text: what is read would be written the same again.
    pub fn from_object_name(name: &str, layout: KeyLayout) -> Result<Self, KeyError> {
        let fault = |reason| KeyError::Name {
            name: name.to_owned(),
            layout,
            reason,
        };
        let fields: Vec<&str> = name.split('@').collect();
        let (model, rank, group, hash, salt) = match (layout, fields.as_slice()) {
            (KeyLayout::Ungrouped, [model, rank, hash]) => (model, rank, "0", hash, ""),
            (KeyLayout::Ungrouped, [model, rank, hash, salt]) => (model, rank, "0", hash, *salt),
            (KeyLayout::Grouped, [model, rank, group, hash]) => (model, rank, *group, hash, ""),
            (KeyLayout::Grouped, [model, rank, group, hash, salt]) => {
                (model, rank, *group, hash, *salt)
            }
            _ => return Err(fault("it has too few or too many fields")),
        };
        let number = |text| u64::from_str_radix(text, 16);
        let key = Self::new(
            *model,
            number(rank).map_err(|_| fault("its rank is not a hexadecimal number"))?,
            from_hex(hash, false).ok_or_else(|| fault("its hash is not hexadecimal"))?,
        )?
        .with_object_group(
            number(group).map_err(|_| fault("its group is not a hexadecimal number"))?,
        )
        .with_cache_salt(salt)?;
        // One key has one name: upper case, missing zeros or an empty salt field are someone else's.
        if key.object_name(layout)? != name {
            return Err(fault("it is spelled differently from how keys are written"));
        }
        Ok(key)
    }

    /// Reads a name that [`encoded_name`](Self::encoded_name) formed in the same layout.
    ///
    /// # Errors
    ///
    /// As [`from_object_name`](Self::from_object_name).
    pub fn from_encoded_name(encoded: &str, layout: KeyLayout) -> Result<Self, KeyError> {
        let fault = |reason| KeyError::Name {
            name: encoded.to_owned(),
            layout,
            reason,
        };
        let name = percent_decode_str(encoded)
            .decode_utf8()
            .map_err(|_| fault("it does not decode to UTF-8"))?;
        let key = Self::from_object_name(&name, layout)?;
        if utf8_percent_encode(&name, ESCAPED).to_string() != encoded {
            return Err(fault("it is encoded differently from how keys are written"));
        }
        Ok(key)
    }

    pub(super) fn grouped_name(&self) -> String {
        self.name(&format!("@{:x}", self.object_group_id()))
    }

    fn name(&self, group: &str) -> String {
        let (model, rank) = (self.model_name(), self.kv_rank());
        let hash = to_hex(self.chunk_hash());
        match self.cache_salt() {
            "" => format!("{model}@{rank:08x}{group}@{hash}"),
            salt => format!("{model}@{rank:08x}{group}@{hash}@{salt}"),
        }
    }
}

/// Where one adapter's objects lie: a prefix and a layout.
#[derive(Debug, Clone)]
pub(super) struct Namer {
    prefix: Path,
    layout: KeyLayout,
}

impl Namer {
    /// # Errors
    ///
    /// [`object_store::path::Error`] for a prefix that no store takes: `.` and `..` segments,
    /// control characters.
    pub(super) fn new(prefix: &str, layout: KeyLayout) -> Result<Self, object_store::path::Error> {
        let prefix = Path::parse(prefix)?;
        Ok(Self { prefix, layout })
    }

    pub(super) fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// `<prefix>/<encoded name>`.
    pub(super) fn path(&self, key: &ObjectKey) -> Result<Path, KeyError> {
        let encoded = key.encoded_name(self.layout)?;
        let path = if self.prefix.as_ref().is_empty() {
            encoded
        } else {
            format!("{}/{encoded}", self.prefix)
        };
        // `Path::from` would encode the `%` once more. Parsing cannot fail: the prefix was parsed
        // before, and an encoded name is a segment that holds `%40`, so neither `.` nor empty.
        Path::parse(&path).map_err(|_| KeyError::Name {
            name: path,
            layout: self.layout,
            reason: "it is not a path",
        })
    }

    /// The key whose path this is; `None` for objects that are not ours.
    pub(super) fn key(&self, path: &Path) -> Option<ObjectKey> {
        let mut rest = path.prefix_match(&self.prefix)?;
        let (name, None) = (rest.next()?, rest.next()) else {
            return None;
        };
        ObjectKey::from_encoded_name(name.as_ref(), self.layout).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(name: &str, layout: KeyLayout) -> Result<ObjectKey, KeyError> {
        ObjectKey::from_object_name(name, layout)
    }

    #[test]
    fn a_group_needs_the_grouped_layout() {
        let key = ObjectKey::new("m", 1, vec![1])
            .unwrap()
            .with_object_group(2);
        assert_eq!(
            key.object_name(KeyLayout::Ungrouped),
            Err(KeyError::GroupInUngroupedLayout { object_group_id: 2 })
        );
        assert_eq!(
            key.object_name(KeyLayout::Grouped).unwrap(),
            "m@00000001@2@01"
        );
    }

    #[test]
    fn one_name_two_readings() {
        let name = "m@01000100@ab@cdef";
        let grouped = read(name, KeyLayout::Grouped).unwrap();
        assert_eq!(
            (grouped.object_group_id(), grouped.cache_salt()),
            (0xab, "")
        );
        let ungrouped = read(name, KeyLayout::Ungrouped).unwrap();
        assert_eq!(ungrouped.chunk_hash(), [0xab]);
        assert_eq!(ungrouped.cache_salt(), "cdef");
    }

    #[test]
    fn foreign_names_are_refused() {
        for name in [
            "",
            "m",
            "m@00000001",
            "m@00000001@0@01@s@t",
            "m@1@0@01",
            "m@00000001@00@01",
            "m@00000001@0@0",
            "m@00000001@0@AB",
            "m@0000000A@0@01",
            "m@00000001@0@01@",
            "m@+0000001@0@01",
            "m@00000001@0@01@a/b",
            "m@11111111111111111@0@01",
        ] {
            assert!(read(name, KeyLayout::Grouped).is_err(), "{name}");
        }
        for encoded in [
            "m%4000000001%400%4001%",
            "m@00000001@0@01",
            "m%4000000001%400%4%301",
            "%FF",
        ] {
            assert!(
                ObjectKey::from_encoded_name(encoded, KeyLayout::Grouped).is_err(),
                "{encoded}"
            );
        }
    }

    #[test]
    fn paths_lead_back_to_keys() {
        let namer = Namer::new("a b/50%", KeyLayout::Ungrouped).unwrap();
        let key = ObjectKey::new("x/y", 1, vec![0xff]).unwrap();
        let path = namer.path(&key).unwrap();
        assert_eq!(path.as_ref(), "a b/50%/x%2Fy%4000000001%40ff");
        assert_eq!(namer.key(&path), Some(key));
        for foreign in ["a b/50%/x", "a b/50%/x/y%4000000001%40ff", "z", "a b/50%"] {
            assert_eq!(namer.key(&Path::parse(foreign).unwrap()), None, "{foreign}");
        }
    }

    #[test]
    fn a_prefix_that_no_store_takes_is_refused() {
        for prefix in ["a/../b", ".", "a\u{7}b"] {
            assert!(Namer::new(prefix, KeyLayout::Grouped).is_err(), "{prefix}");
        }
    }

    proptest! {
        #[test]
        fn any_key_survives_the_round_trip(
            model in "[^@]{0,24}",
            rank in any::<u64>(),
            group in any::<u64>(),
            hash in prop::collection::vec(any::<u8>(), 0..40),
            salt in "[^@/\\\\\0]{0,24}",
            prefix in "[a-z%~ ]{0,8}",
        ) {
            let key = ObjectKey::new(model, rank, hash).unwrap().with_cache_salt(salt).unwrap();
            for (layout, key) in [
                (KeyLayout::Ungrouped, key.clone()),
                (KeyLayout::Grouped, key.with_object_group(group)),
            ] {
                let name = key.object_name(layout).unwrap();
                prop_assert_eq!(&ObjectKey::from_object_name(&name, layout).unwrap(), &key);
                let encoded = key.encoded_name(layout).unwrap();
                prop_assert_eq!(&ObjectKey::from_encoded_name(&encoded, layout).unwrap(), &key);
                let namer = Namer::new(&prefix, layout).unwrap();
                let path = namer.path(&key).unwrap();
                prop_assert_eq!(namer.key(&path), Some(key));
            }
        }

        #[test]
        fn any_text_is_read_exactly_or_not_at_all(name in ".{0,40}") {
            for layout in [KeyLayout::Ungrouped, KeyLayout::Grouped] {
                if let Ok(key) = ObjectKey::from_object_name(&name, layout) {
                    prop_assert_eq!(&key.object_name(layout).unwrap(), &name);
                }
            }
        }
    }
}

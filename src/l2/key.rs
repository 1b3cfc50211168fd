//! What one KV-cache chunk is called: model, rank, object group, chunk hash and salt.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use super::chunk_hash::ChunkHash;

/// Most code points a cache salt may have.
pub const MAX_SALT_CHARS: usize = 128;

/// The name of one chunk, as LMCache forms it.
///
/// Equality spans all five fields. Nothing is normalised: two spellings of one text (composed and
/// decomposed, say) are two keys. A clone copies no text.
///
/// # JSON
///
/// `{"chunk_hash_hex": "1f40…", "model_name": "m", "kv_rank": 16777472, "object_group_id": 0,
/// "cache_salt": ""}`; the last two may be left out. The hex reader takes upper case and blanks
/// between bytes. Other fields are ignored.
///
/// ```
/// use hfbucket::l2::{KeyLayout, ObjectKey};
///
/// let key = ObjectKey::new("meta-llama/Llama-3.1-8B", 0x0100_0100, vec![0xab, 0xcd])?
///     .with_cache_salt("tenant-a")?;
/// assert_eq!(
///     key.object_name(KeyLayout::Grouped)?,
///     "meta-llama/Llama-3.1-8B@01000100@0@abcd@tenant-a"
/// );
/// # Ok::<(), hfbucket::l2::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    model_name: Arc<str>,
    kv_rank: u64,
    object_group_id: u64,
    chunk_hash: ChunkHash,
    cache_salt: Arc<str>,
}

/// Why a key cannot be, or cannot be named.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// `@` separates the fields of a name, so a model's name cannot hold it.
    #[error("model name '{model_name}' holds '@', which separates the fields of an object's name")]
    ModelName {
        /// The model's name.
        model_name: String,
    },
    /// A character that no salt may hold.
    #[error("cache salt '{}' holds {character:?}; '@', '/', '\\' and NUL are not allowed", .salt.escape_debug())]
    SaltCharacter {
        /// The salt.
        salt: String,
        /// The character.
        character: char,
    },
    /// The salt is too long.
    #[error("cache salt has {chars} characters; at most {MAX_SALT_CHARS} are allowed")]
    SaltLength {
        /// Its length in code points.
        chars: usize,
    },
    /// The ungrouped layout has no field for the object group, so two keys would share one name.
    #[error(
        "object group {object_group_id} cannot be named in the ungrouped layout, which has no \
         field for it: set \"key_layout\": \"grouped\""
    )]
    GroupInUngroupedLayout {
        /// The group.
        object_group_id: u64,
    },
    /// Not a name that this layout forms.
    #[error("'{}' is not an object's name in the {layout} layout: {reason}", .name.escape_debug())]
    Name {
        /// The name.
        name: String,
        /// The layout it was read in.
        layout: super::KeyLayout,
        /// Which rule it breaks.
        reason: &'static str,
    },
}

impl ObjectKey {
    /// A key of object group 0 without a salt.
    ///
    /// `kv_rank` packs world size and ranks as LMCache does (`world << 24 | global << 16 |
    /// local_world << 8 | local`); it is not checked. The hash may have any length, 0 included.
    ///
    /// # Errors
    ///
    /// [`KeyError::ModelName`] if the model's name holds `@`.
    pub fn new(
        model_name: impl Into<Arc<str>>,
        kv_rank: u64,
        chunk_hash: impl AsRef<[u8]>,
    ) -> Result<Self, KeyError> {
        let model_name = model_name.into();
        if model_name.contains('@') {
            return Err(KeyError::ModelName {
                model_name: model_name.as_ref().to_owned(),
            });
        }
        Ok(Self {
            model_name,
            kv_rank,
            object_group_id: 0,
            chunk_hash: ChunkHash::new(chunk_hash.as_ref()),
            cache_salt: Arc::from(""),
        })
    }

    /// The same key in another object group.
    #[must_use]
    pub fn with_object_group(mut self, object_group_id: u64) -> Self {
        self.object_group_id = object_group_id;
        self
    }

    /// The same key under a salt, which keeps tenants apart. Empty means none.
    ///
    /// # Errors
    ///
    /// [`KeyError::SaltCharacter`] for `@`, `/`, `\` or NUL, [`KeyError::SaltLength`] for more than
    /// [`MAX_SALT_CHARS`] code points.
    pub fn with_cache_salt(mut self, salt: impl Into<Arc<str>>) -> Result<Self, KeyError> {
        let salt = salt.into();
        if let Some(character) = salt.chars().find(|c| matches!(c, '@' | '/' | '\\' | '\0')) {
            return Err(KeyError::SaltCharacter {
                salt: salt.as_ref().to_owned(),
                character,
            });
        }
        let chars = salt.chars().count();
        if chars > MAX_SALT_CHARS {
            return Err(KeyError::SaltLength { chars });
        }
        self.cache_salt = salt;
        Ok(self)
    }

    /// The model's name.
    pub fn model_name(&self) -> &str {
        &self.model_name
    }

    /// World size and ranks, packed.
    pub fn kv_rank(&self) -> u64 {
        self.kv_rank
    }

    /// The object group.
    pub fn object_group_id(&self) -> u64 {
        self.object_group_id
    }

    /// The chunk's hash.
    pub fn chunk_hash(&self) -> &[u8] {
        self.chunk_hash.as_ref()
    }

    /// The salt; empty for none.
    pub fn cache_salt(&self) -> &str {
        &self.cache_salt
    }

    pub(super) fn model(&self) -> &Arc<str> {
        &self.model_name
    }

    pub(super) fn salt(&self) -> &Arc<str> {
        &self.cache_salt
    }

    pub(super) fn hash(&self) -> &ChunkHash {
        &self.chunk_hash
    }

    /// A key that was one before: nothing is checked.
    pub(super) fn from_parts(
        model_name: Arc<str>,
        kv_rank: u64,
        object_group_id: u64,
        chunk_hash: ChunkHash,
        cache_salt: Arc<str>,
    ) -> Self {
        Self {
            model_name,
            kv_rank,
            object_group_id,
            chunk_hash,
            cache_salt,
        }
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectKey({})", self.grouped_name())
    }
}

#[derive(Serialize, Deserialize)]
struct JsonKey {
    chunk_hash_hex: String,
    model_name: String,
    kv_rank: u64,
    #[serde(default)]
    object_group_id: u64,
    #[serde(default)]
    cache_salt: String,
}

impl Serialize for ObjectKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        JsonKey {
            chunk_hash_hex: to_hex(self.chunk_hash()),
            model_name: self.model_name.as_ref().to_owned(),
            kv_rank: self.kv_rank,
            object_group_id: self.object_group_id,
            cache_salt: self.cache_salt.as_ref().to_owned(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ObjectKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = JsonKey::deserialize(deserializer)?;
        let hash = from_hex(&json.chunk_hash_hex, true).ok_or_else(|| {
            de::Error::custom(format!(
                "chunk_hash_hex '{}' is not hexadecimal",
                json.chunk_hash_hex
            ))
        })?;
        Self::new(json.model_name, json.kv_rank, hash)
            .map(|key| key.with_object_group(json.object_group_id))
            .and_then(|key| key.with_cache_salt(json.cache_salt))
            .map_err(de::Error::custom)
    }
}

pub(super) fn to_hex(bytes: &[u8]) -> String {
    use fmt::Write;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing into a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Reads pairs of hex digits; with `blanks`, ASCII whitespace may stand between pairs.
pub(super) fn from_hex(text: &str, blanks: bool) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16);
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut rest = text.as_bytes();
    loop {
        match rest {
            [] => return Some(bytes),
            [b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, tail @ ..] if blanks => rest = tail,
            [high, low, tail @ ..] => {
                let value = digit(*high)? << 4 | digit(*low)?;
                bytes.push(u8::try_from(value).ok()?);
                rest = tail;
            }
            [_] => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ObjectKey {
        ObjectKey::new("m", 1, [1, 2]).unwrap()
    }

    #[test]
    fn fields_that_would_break_a_name_are_refused() {
        assert!(matches!(
            ObjectKey::new("a@b", 0, vec![]),
            Err(KeyError::ModelName { .. })
        ));
        for (salt, character) in [("a@", '@'), ("a/b", '/'), ("\\", '\\'), ("a\0", '\0')] {
            assert_eq!(
                key().with_cache_salt(salt),
                Err(KeyError::SaltCharacter {
                    salt: salt.to_owned(),
                    character
                })
            );
        }
        assert!(ObjectKey::new("", 0, vec![]).is_ok());
        assert!(ObjectKey::new("a/ \\\0", u64::MAX, vec![]).is_ok());
    }

    #[test]
    fn a_salt_is_measured_in_code_points() {
        assert!(key().with_cache_salt("中".repeat(128)).is_ok());
        assert_eq!(
            key().with_cache_salt("a".repeat(129)),
            Err(KeyError::SaltLength { chars: 129 })
        );
    }

    #[test]
    fn equality_spans_every_field() {
        let salted = key().with_cache_salt("s").unwrap();
        let others = [
            salted.clone(),
            key().with_object_group(1),
            ObjectKey::new("m", 2, vec![1, 2]).unwrap(),
            ObjectKey::new("n", 1, vec![1, 2]).unwrap(),
            ObjectKey::new("m", 1, vec![1]).unwrap(),
        ];
        for other in others {
            assert_ne!(other, key());
        }
        assert_ne!(
            key().with_cache_salt("é").unwrap(),
            key().with_cache_salt("e\u{301}").unwrap()
        );
    }

    #[test]
    fn json_goes_both_ways() {
        let key = key().with_object_group(7).with_cache_salt("s").unwrap();
        let json = serde_json::to_value(&key).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"chunk_hash_hex": "0102", "model_name": "m", "kv_rank": 1,
                               "object_group_id": 7, "cache_salt": "s"})
        );
        assert_eq!(serde_json::from_value::<ObjectKey>(json).unwrap(), key);
    }

    #[test]
    fn json_reads_loose_hex_and_defaults() {
        let read = |hex: &str| {
            serde_json::from_value::<ObjectKey>(serde_json::json!({
                "chunk_hash_hex": hex, "model_name": "m", "kv_rank": 1}))
        };
        let key = read(" AB cd\n").unwrap();
        assert_eq!(key.chunk_hash(), [0xab, 0xcd]);
        assert_eq!((key.object_group_id(), key.cache_salt()), (0, ""));
        for bad in ["a", "a b", "zz", "0x12", "+1"] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.contains("not hexadecimal"), "{bad}: {error}");
        }
    }

    #[test]
    fn json_keeps_the_rules() {
        let refused = [
            serde_json::json!({"chunk_hash_hex": "", "model_name": "a@b", "kv_rank": 1}),
            serde_json::json!({"chunk_hash_hex": "", "model_name": "a", "kv_rank": 1, "cache_salt": "/"}),
            serde_json::json!({"chunk_hash_hex": "", "model_name": "a", "kv_rank": 1, "object_group_id": -1}),
        ];
        for json in refused {
            assert!(serde_json::from_value::<ObjectKey>(json).is_err());
        }
    }
}

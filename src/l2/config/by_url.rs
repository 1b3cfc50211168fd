//! The part of a configuration that names a store by URL.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use url::Url;

use super::ConfigError;
use super::fields::{self, Fields};

/// A store by URL, with its options.
#[derive(Clone, PartialEq)]
pub struct ObjectStoreConfig {
    url: Url,
    options: BTreeMap<String, String>,
    fsync: bool,
}

impl ObjectStoreConfig {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, ConfigError> {
        const EXPECTED: &str = "a URL: s3://<bucket>/<prefix>, file:///<directory> or memory:///";
        let url = fields.text("url")?.ok_or(ConfigError::Missing {
            field: "url",
            hint: ": s3://<bucket>/<prefix>, file:///<directory> or memory:///",
        })?;
        let given = url;
        let url = Url::parse(given).map_err(|error| ConfigError::Value {
            field: "url".to_owned(),
            expected: EXPECTED,
            // Not the text itself: it may hold a password.
            found: format!("a text that is not one ({error})"),
        })?;
        // None of these would be heeded, and the first may be a secret that belongs elsewhere.
        for (given, part) in [
            (
                !url.username().is_empty() || url.password().is_some(),
                "user information",
            ),
            (url.query().is_some(), "a query"),
            (url.fragment().is_some(), "a fragment"),
        ] {
            if given {
                return Err(ConfigError::Value {
                    field: "url".to_owned(),
                    expected: EXPECTED,
                    found: format!("one with {part}; settings go into 'options'"),
                });
            }
        }
        if is_relative_file(&url, given) {
            return Err(ConfigError::Value {
                field: "url".to_owned(),
                expected: EXPECTED,
                found: "one of a directory that does not begin at the root, after three slashes"
                    .to_owned(),
            });
        }
        let mut options = BTreeMap::new();
        if let Some(block) = fields.block("options")? {
            for (key, value) in block.0 {
                options.insert(key.clone(), option_text(key, value)?);
            }
        }
        let fsync = fields.boolean("fsync", false)?;
        Ok(Self {
            url,
            options,
            fsync,
        })
    }

    /// The store's URL.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// `object_store`'s options. They may hold secrets.
    pub fn options(&self) -> &BTreeMap<String, String> {
        &self.options
    }

    /// Whether a store is done only when the object is on the disk, not just handed to the operating
    /// system. Only for `file` URLs.
    pub fn fsync(&self) -> bool {
        self.fsync
    }

    pub(super) fn prefix(&self) -> String {
        let path = percent_encoding::percent_decode_str(self.url.path()).decode_utf8_lossy();
        path.trim_matches('/').to_owned()
    }
}

/// A URL parser takes `file:kv` for `/kv`, and `file://kv/pool` for `/pool` of the host `kv`; neither
/// is what its author wants.
fn is_relative_file(url: &Url, given: &str) -> bool {
    let after_scheme = given.split_once(':').map_or("", |(_, rest)| rest);
    url.scheme() == "file" && (url.has_host() || !after_scheme.starts_with(['/', '\\']))
}

fn option_text(key: &str, value: &Value) -> Result<String, ConfigError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        other => Err(ConfigError::Value {
            field: format!("options.{key}"),
            expected: "text, a number or a boolean",
            found: fields::show_kind(other).to_owned(),
        }),
    }
}

impl fmt::Debug for ObjectStoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStoreConfig")
            .field("url", &self.url.as_str())
            .field("options", &self.options.keys())
            .field("fsync", &self.fsync)
            .finish()
    }
}

//! The bucket's part of a configuration.

use std::fmt;
use std::path::PathBuf;

use serde_json::Value;

use super::ConfigError;
use super::fields::Fields;
use super::handle::{self, Handle};
use crate::location::without_secrets;

/// The fields of the `hfbucket` JSON that concern the bucket.
#[derive(Clone, PartialEq)]
pub struct HfBucketConfig {
    bucket_handle: String,
    handle: Handle,
    token_env: String,
    token: Option<String>,
    download_tmp_dir: String,
    create_bucket_if_missing: bool,
}

/// The bucket's fields as far as LMCache checks them before the common ones.
pub(super) struct UnparsedBucket(HfBucketConfig);

impl UnparsedBucket {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, ConfigError> {
        let bucket_handle = match fields.0.get("bucket_handle") {
            None => {
                return Err(ConfigError::Missing {
                    field: "bucket_handle",
                    hint: " (for another store, set \"type\": \"object_store\" and \"url\")",
                });
            }
            Some(Value::String(handle)) if !handle.is_empty() => handle.clone(),
            Some(_) => return Err(fields.refuse("bucket_handle", handle::EXPECTED)),
        };
        let token_env = fields.text("token_env")?.unwrap_or("HF_TOKEN").to_owned();
        let token = fields.secret("token")?;
        let download_tmp_dir = match fields.text("download_tmp_dir")? {
            None => std::env::temp_dir()
                .join("lmcache-hfbucket-mp")
                .to_string_lossy()
                .into_owned(),
            Some("") => return Err(fields.refuse("download_tmp_dir", "a directory")),
            Some(directory) => handle::tidy_directory(directory),
        };
        Ok(Self(HfBucketConfig {
            bucket_handle,
            handle: Handle::default(),
            token_env,
            token,
            download_tmp_dir,
            create_bucket_if_missing: false,
        }))
    }

    pub(super) fn finish(self, fields: &Fields<'_>) -> Result<HfBucketConfig, ConfigError> {
        let create_bucket_if_missing = fields.boolean("create_bucket_if_missing", false)?;
        let handle = Handle::parse(&self.0.bucket_handle).ok_or_else(|| ConfigError::Value {
            field: "bucket_handle".to_owned(),
            expected: handle::EXPECTED,
            found: format!("{:?}", without_secrets(&self.0.bucket_handle)),
        })?;
        Ok(HfBucketConfig {
            handle,
            create_bucket_if_missing,
            ..self.0
        })
    }
}

impl HfBucketConfig {
    /// The handle as it was given.
    pub fn bucket_handle(&self) -> &str {
        &self.bucket_handle
    }

    pub(super) fn prefix(&self) -> &str {
        &self.handle.prefix
    }

    /// The user or organisation that owns the bucket.
    pub fn namespace(&self) -> &str {
        &self.handle.namespace
    }

    /// The bucket's name without its namespace.
    pub fn bucket(&self) -> &str {
        &self.handle.bucket
    }

    /// `<namespace>/<bucket>`.
    pub fn bucket_id(&self) -> String {
        format!("{}/{}", self.handle.namespace, self.handle.bucket)
    }

    /// The variable whose value is the token; empty looks at none.
    pub fn token_env(&self) -> &str {
        &self.token_env
    }

    /// The token in the configuration itself.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The token to use: the variable named by `token_env` if it is set and not empty, else
    /// `token` unless that is empty, else `None`, which leaves the choice to the client's own login.
    ///
    /// (LMCache sends an empty `token` as an empty bearer, which the Hub refuses.)
    pub fn resolve_token(&self, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
        let named = match self.token_env.as_str() {
            "" => None,
            name => variable(name),
        };
        named
            .filter(|token| !token.is_empty())
            .or_else(|| self.token.clone().filter(|token| !token.is_empty()))
    }

    /// Where the client keeps scratch files, as given (`.` segments and doubled slashes collapsed).
    pub fn download_tmp_dir(&self) -> &str {
        &self.download_tmp_dir
    }

    /// The same with a leading `~` expanded to the home directory.
    pub fn scratch_dir(&self) -> PathBuf {
        match self.download_tmp_dir.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => std::env::home_dir()
                .map_or_else(
                    || PathBuf::from(&self.download_tmp_dir),
                    |home| home.join(rest.trim_start_matches('/')),
                ),
            _ => PathBuf::from(&self.download_tmp_dir),
        }
    }

    /// Whether the first store creates the bucket.
    pub fn create_bucket_if_missing(&self) -> bool {
        self.create_bucket_if_missing
    }
}

impl fmt::Debug for HfBucketConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HfBucketConfig")
            .field("bucket_handle", &self.bucket_handle)
            .field("token_env", &self.token_env)
            .field("token", &self.token.as_ref().map(|_| "<hidden>"))
            .field("download_tmp_dir", &self.download_tmp_dir)
            .field("create_bucket_if_missing", &self.create_bucket_if_missing)
            .finish_non_exhaustive()
    }
}

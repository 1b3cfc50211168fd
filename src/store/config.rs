//! Configuration by key: one set of names for code, URLs' options and the environment.

use std::str::FromStr;

use object_store::ClientConfigKey;

use super::builder::Error;
use crate::hub::is_truthy;

/// A setting of [`HfBucketBuilder`](crate::HfBucketBuilder) by name, for
/// [`with_config`](crate::HfBucketBuilder::with_config) and
/// [`parse_url_opts`](crate::parse_url_opts).
///
/// Names are case-insensitive, and the `hf_` may be left out.
///
/// ```
/// use hfbucket::HfBucketConfigKey;
///
/// let key: HfBucketConfigKey = "endpoint".parse()?;
/// assert_eq!(key, HfBucketConfigKey::Endpoint);
/// assert_eq!(key.as_ref(), "hf_endpoint");
/// # Ok::<(), object_store::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HfBucketConfigKey {
    /// `hf_url`: `hf://buckets/<namespace>/<bucket>[/<prefix>]` or the web form.
    Url,
    /// `hf_bucket`: `<namespace>/<bucket>`.
    Bucket,
    /// `hf_prefix`: what every path lies below.
    Prefix,
    /// `hf_token`: the Hub token.
    Token,
    /// `hf_endpoint`: the Hub's address; default `https://huggingface.co`.
    Endpoint,
    /// `hf_create_bucket_if_missing`: whether the first write creates the bucket.
    CreateBucketIfMissing,
    /// `hf_private`: whether a bucket that is created is private; unset leaves it to the Hub.
    Private,
    /// `hf_download_mode`: `xet` or `http`.
    DownloadMode,
    /// `hf_cache_dir` (or `hf_xet_cache`): hf-xet's folder for its shard cache and scratch files.
    CacheDir,
    /// `hf_read_ahead`: bytes that reads may ask for ahead of their readers.
    ReadAhead,
    /// `hf_compression`: whether uploads try to compress.
    Compression,
    /// `hf_offline` (or `hf_hub_offline`): fail before any request.
    Offline,
    /// `hf_disable_xet` (or `hf_hub_disable_xet`): read through `resolve`, refuse writes.
    DisableXet,
    /// An option of the HTTP client, under `object_store`'s own name.
    Client(ClientConfigKey),
}

impl AsRef<str> for HfBucketConfigKey {
    fn as_ref(&self) -> &str {
        match self {
            Self::Url => "hf_url",
            Self::Bucket => "hf_bucket",
            Self::Prefix => "hf_prefix",
            Self::Token => "hf_token",
            Self::Endpoint => "hf_endpoint",
            Self::CreateBucketIfMissing => "hf_create_bucket_if_missing",
            Self::Private => "hf_private",
            Self::DownloadMode => "hf_download_mode",
            Self::CacheDir => "hf_cache_dir",
            Self::ReadAhead => "hf_read_ahead",
            Self::Compression => "hf_compression",
            Self::Offline => "hf_offline",
            Self::DisableXet => "hf_disable_xet",
            Self::Client(key) => key.as_ref(),
        }
    }
}

impl FromStr for HfBucketConfigKey {
    type Err = object_store::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let lower = name.to_ascii_lowercase();
        match lower.strip_prefix("hf_").unwrap_or(&lower) {
            "url" => Ok(Self::Url),
            "bucket" => Ok(Self::Bucket),
            "prefix" => Ok(Self::Prefix),
            "token" => Ok(Self::Token),
            "endpoint" => Ok(Self::Endpoint),
            "create_bucket_if_missing" => Ok(Self::CreateBucketIfMissing),
            "private" => Ok(Self::Private),
            "download_mode" => Ok(Self::DownloadMode),
            "cache_dir" | "xet_cache" => Ok(Self::CacheDir),
            "read_ahead" => Ok(Self::ReadAhead),
            "compression" => Ok(Self::Compression),
            "offline" | "hub_offline" => Ok(Self::Offline),
            "disable_xet" | "hub_disable_xet" => Ok(Self::DisableXet),
            _ => match lower.parse() {
                Ok(key) => Ok(Self::Client(key)),
                Err(_) => Err(Error::UnknownKey { key: name.into() }.into()),
            },
        }
    }
}

/// A boolean given by key, where a typing error must not pass as false.
pub(super) fn boolean(key: &HfBucketConfigKey, value: &str) -> Result<bool, Error> {
    truth(value).ok_or_else(|| Error::Value {
        key: key.as_ref().to_owned(),
        value: value.to_owned(),
        expected: "true or false",
    })
}

/// `None` for what is neither true nor false.
pub(super) fn truth(value: &str) -> Option<bool> {
    let falsy = ["0", "off", "no", "false"];
    if is_truthy(value) {
        Some(true)
    } else {
        let value = value.trim().to_ascii_lowercase();
        falsy.contains(&value.as_str()).then_some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for key in [
            HfBucketConfigKey::Url,
            HfBucketConfigKey::Bucket,
            HfBucketConfigKey::Prefix,
            HfBucketConfigKey::Token,
            HfBucketConfigKey::Endpoint,
            HfBucketConfigKey::CreateBucketIfMissing,
            HfBucketConfigKey::Private,
            HfBucketConfigKey::DownloadMode,
            HfBucketConfigKey::CacheDir,
            HfBucketConfigKey::ReadAhead,
            HfBucketConfigKey::Compression,
            HfBucketConfigKey::Offline,
            HfBucketConfigKey::DisableXet,
            HfBucketConfigKey::Client(ClientConfigKey::Timeout),
        ] {
            assert_eq!(key.as_ref().parse::<HfBucketConfigKey>().unwrap(), key);
            let upper = key.as_ref().to_ascii_uppercase();
            assert_eq!(upper.parse::<HfBucketConfigKey>().unwrap(), key);
        }
        let error = "hf_tokn".parse::<HfBucketConfigKey>().unwrap_err();
        assert!(error.to_string().contains("hf_tokn"), "{error}");
    }

    #[test]
    fn a_boolean_is_never_guessed() {
        let key = HfBucketConfigKey::Offline;
        assert!(boolean(&key, "Yes").unwrap());
        assert!(!boolean(&key, "off").unwrap());
        assert!(
            boolean(&key, "ja")
                .unwrap_err()
                .to_string()
                .contains("'ja'")
        );
    }
}

//! Where a bucket is: `hf://buckets/<namespace>/<bucket>[/<prefix>]` and the web form.

use std::fmt;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use thiserror::Error;
use url::Url;

const SCHEME: &str = "hf://buckets/";

/// A bucket, and the prefix below which every path of a store lies.
///
/// # Forms
///
/// - `hf://buckets/<namespace>/<bucket>[/<prefix>]`, taken to the letter: nothing is
///   percent-decoded, so `%20`, `?` and `#` in a prefix are themselves.
/// - `https://<endpoint>/buckets/<namespace>/<bucket>[/tree/<prefix>]`, as a browser shows it;
///   percent-decoded, a query or fragment is dropped.
///
/// A trailing slash is dropped. Empty segments inside, `.` and `..` are refused, as the Hub refuses
/// them.
///
/// ```
/// use hfbucket::BucketLocation;
///
/// let location: BucketLocation = "hf://buckets/my-org/lmcache-kv/prod/eu".parse()?;
/// assert_eq!(location.namespace(), "my-org");
/// assert_eq!(location.bucket(), "lmcache-kv");
/// assert_eq!(location.prefix(), "prod/eu");
/// assert_eq!(location.to_string(), "hf://buckets/my-org/lmcache-kv/prod/eu");
///
/// let web: BucketLocation = "https://huggingface.co/buckets/my-org/lmcache-kv/tree/prod".parse()?;
/// assert_eq!(web.prefix(), "prod");
/// # Ok::<(), hfbucket::LocationError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BucketLocation {
    namespace: String,
    bucket: String,
    prefix: String,
}

/// Why a text does not name a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LocationError {
    /// Neither `hf://buckets/…` nor `https://…/buckets/…`.
    #[error(
        "'{input}' is not a bucket: expected hf://buckets/<namespace>/<bucket>[/<prefix>] or \
         https://huggingface.co/buckets/<namespace>/<bucket>[/tree/<prefix>]"
    )]
    Form {
        /// The text given.
        input: String,
    },
    /// The namespace or the bucket's name is missing, or holds a character that names never have.
    #[error(
        "'{name}' is not a {what}: expected letters, digits, '-', '_' and '.', not starting or \
         ending with '-' or '.' (in '{input}')"
    )]
    Name {
        /// `namespace` or `bucket name`.
        what: &'static str,
        /// The part that was refused.
        name: String,
        /// The text given.
        input: String,
    },
    /// The prefix is one that the Hub refuses.
    #[error("prefix '{prefix}' is refused by the Hub: {reason}")]
    Prefix {
        /// The prefix given.
        prefix: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
}

impl BucketLocation {
    /// The bucket `<namespace>/<bucket>` with the given prefix (empty for none).
    ///
    /// Slashes around the prefix are dropped.
    ///
    /// # Errors
    ///
    /// [`LocationError`] if a name or the prefix is one that the Hub refuses.
    pub fn new(namespace: &str, bucket: &str, prefix: &str) -> Result<Self, LocationError> {
        let input = || format!("{SCHEME}{namespace}/{bucket}/{prefix}");
        for (what, name) in [("namespace", namespace), ("bucket name", bucket)] {
            if !is_name(name) {
                return Err(LocationError::Name {
                    what,
                    name: name.to_owned(),
                    input: input(),
                });
            }
        }
        let prefix = prefix.trim_matches('/');
        if let (false, Some(reason)) = (prefix.is_empty(), key_fault(prefix)) {
            return Err(LocationError::Prefix {
                prefix: prefix.to_owned(),
                reason,
            });
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        })
    }

    /// Reads either form from a [`Url`], whose path is percent-decoded.
    ///
    /// # Errors
    ///
    /// [`LocationError`] if the URL is of neither form.
    pub fn from_url(url: &Url) -> Result<Self, LocationError> {
        let form = || LocationError::Form {
            input: without_secrets(url.as_str()),
        };
        let path = percent_decode_str(url.path())
            .decode_utf8()
            .map_err(|_| form())?;
        match (url.scheme(), url.host_str()) {
            ("hf", Some("buckets")) => Self::from_parts(path.trim_start_matches('/'), &form),
            ("http" | "https", Some(_)) => {
                let rest = path.strip_prefix("/buckets/").ok_or_else(form)?;
                let mut parts = rest.splitn(3, '/');
                let (namespace, bucket) = (parts.next(), parts.next());
                let prefix = match parts.next().unwrap_or("").trim_end_matches('/') {
                    "" | "tree" => "",
                    rest => rest.strip_prefix("tree/").ok_or_else(form)?,
                };
                match (namespace, bucket) {
                    (Some(namespace), Some(bucket)) => Self::new(namespace, bucket, prefix),
                    _ => Err(form()),
                }
            }
            _ => Err(form()),
        }
    }

    fn from_parts(rest: &str, form: &dyn Fn() -> LocationError) -> Result<Self, LocationError> {
        let mut parts = rest.splitn(3, '/');
        match (parts.next(), parts.next()) {
            (Some(namespace), Some(bucket)) => {
                Self::new(namespace, bucket, parts.next().unwrap_or(""))
            }
            _ => Err(form()),
        }
    }

    /// The user or organisation that owns the bucket.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The bucket's name without its namespace.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The prefix without slashes around it; empty for the whole bucket.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The same bucket with another prefix.
    ///
    /// # Errors
    ///
    /// [`LocationError::Prefix`] if the Hub refuses the prefix.
    pub fn with_prefix(&self, prefix: &str) -> Result<Self, LocationError> {
        Self::new(&self.namespace, &self.bucket, prefix)
    }
}

impl FromStr for BucketLocation {
    type Err = LocationError;

    fn from_str(input: &str) -> Result<Self, LocationError> {
        let form = || LocationError::Form {
            input: without_secrets(input),
        };
        if let Some(rest) = input.strip_prefix(SCHEME) {
            return Self::from_parts(rest, &form);
        }
        let url = Url::parse(input).map_err(|_| form())?;
        match url.scheme() {
            "http" | "https" => Self::from_url(&url),
            _ => Err(form()),
        }
    }
}

impl TryFrom<&Url> for BucketLocation {
    type Error = LocationError;

    fn try_from(url: &Url) -> Result<Self, LocationError> {
        Self::from_url(url)
    }
}

impl fmt::Display for BucketLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.namespace, self.bucket)?;
        if !self.prefix.is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        Ok(())
    }
}

/// Which rule of the Hub a key breaks, if any (`hub-api`: keys are refused, never rewritten).
pub(crate) fn key_fault(key: &str) -> Option<&'static str> {
    if key.is_empty() {
        return Some("it is empty");
    }
    if key.contains('\\') {
        return Some("it holds a backslash");
    }
    if key.contains('\0') {
        return Some("it holds a NUL character");
    }
    key.split('/').find_map(|segment| match segment {
        "" => Some("it starts or ends with '/', or holds '//'"),
        "." | ".." => Some("it holds a '.' or '..' segment"),
        _ => None,
    })
}

fn is_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let edge = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(inner) && name.starts_with(edge) && name.ends_with(edge)
}

/// People paste tokens into URLs: what stands before an `@` or after a `?` is not repeated.
pub(crate) fn without_secrets(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        (None, Some((_, host))) => format!("…@{host}"),
        (_, None) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(input: &str) -> Result<(String, String, String), LocationError> {
        let location: BucketLocation = input.parse()?;
        Ok((location.namespace, location.bucket, location.prefix))
    }

    #[test]
    fn both_forms_are_read() {
        let cases = [
            ("hf://buckets/o/b", ("o", "b", "")),
            ("hf://buckets/o/b/", ("o", "b", "")),
            ("hf://buckets/o/b/x/y/", ("o", "b", "x/y")),
            ("hf://buckets/o/b/a%20b?c#d", ("o", "b", "a%20b?c#d")),
            ("https://huggingface.co/buckets/o/b", ("o", "b", "")),
            ("https://huggingface.co/buckets/o/b/tree", ("o", "b", "")),
            ("https://huggingface.co/buckets/o/b/tree/", ("o", "b", "")),
            (
                "https://huggingface.co/buckets/o/b/tree/x/a%20b?q=1#f",
                ("o", "b", "x/a b"),
            ),
            ("http://localhost:8080/buckets/o/b/tree/x", ("o", "b", "x")),
        ];
        for (input, (namespace, bucket, prefix)) in cases {
            let expected = (namespace.to_owned(), bucket.to_owned(), prefix.to_owned());
            assert_eq!(parts(input), Ok(expected), "{input}");
        }
    }

    #[test]
    fn a_url_is_decoded() {
        let url = Url::parse("hf://buckets/o/b/a b/%E6%97%A5").unwrap();
        let location = BucketLocation::from_url(&url).unwrap();
        assert_eq!(location.prefix(), "a b/日");
    }

    #[test]
    fn what_is_no_bucket_is_refused() {
        for input in [
            "",
            "o/b",
            "hf://o/b",
            "hf://buckets/o",
            "hf://models/o/b",
            "HF://buckets/o/b",
            "s3://buckets/o/b",
            "https://huggingface.co/o/b",
            "https://huggingface.co/buckets/o",
            "https://huggingface.co/buckets/o/b/blob/x",
        ] {
            assert!(
                matches!(parts(input), Err(LocationError::Form { .. })),
                "{input}: {:?}",
                parts(input)
            );
        }
        for input in [
            "hf://buckets//b",
            "hf://buckets/o//x",
            "hf://buckets/-o/b",
            "hf://buckets/o/b c",
            "hf://buckets/o/b?x",
        ] {
            assert!(
                matches!(parts(input), Err(LocationError::Name { .. })),
                "{input}: {:?}",
                parts(input)
            );
        }
        for input in [
            "hf://buckets/o/b/x//y",
            "hf://buckets/o/b/..",
            "hf://buckets/o/b/x\\y",
        ] {
            assert!(
                matches!(parts(input), Err(LocationError::Prefix { .. })),
                "{input}: {:?}",
                parts(input)
            );
        }
    }

    #[test]
    fn a_password_is_not_repeated() {
        for input in [
            "https://me:hf_secret@huggingface.co/x",
            "https://hf_secret@huggingface.co/buckets/o",
            "hf_secret@huggingface.co",
            "https://huggingface.co/x?token=hf_secret",
        ] {
            let error = parts(input).unwrap_err().to_string();
            assert!(!error.contains("hf_secret"), "{error}");
            assert!(error.contains("huggingface.co"), "{error}");
        }
    }
}

//! The bucket handle as LMCache reads it, which is looser than
//! [`BucketLocation`](crate::BucketLocation), and the spelling of directories.

use super::fields::is_python_space;

pub(super) const EXPECTED: &str = "hf://buckets/<namespace>/<bucket>[/<prefix>]";

/// A handle taken apart. Nothing but its form was checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Handle {
    pub(super) namespace: String,
    pub(super) bucket: String,
    pub(super) prefix: String,
}

impl Handle {
    /// Empty parts are dropped wherever they stand; `..`, blanks and `?` stay.
    pub(super) fn parse(handle: &str) -> Option<Self> {
        let rest = handle
            .trim_matches(is_python_space)
            .strip_prefix("hf://buckets/")?;
        let mut parts = rest.split('/').filter(|part| !part.is_empty());
        let (namespace, bucket) = (parts.next()?, parts.next()?);
        Some(Self {
            namespace: namespace.to_owned(),
            bucket: bucket.to_owned(),
            prefix: parts.collect::<Vec<_>>().join("/"),
        })
    }
}

/// A directory as Python's `pathlib` spells it: `.` segments, repeated and trailing slashes are
/// dropped, exactly two leading slashes stay.
pub(super) fn tidy_directory(directory: &str) -> String {
    let rest = directory.trim_start_matches('/');
    let root = match directory.len() - rest.len() {
        0 => "",
        2 => "//",
        _ => "/",
    };
    let parts: Vec<&str> = rest
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    match (root, parts.as_slice()) {
        ("", []) => ".".to_owned(),
        _ => format!("{root}{}", parts.join("/")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_spelled_as_in_python() {
        for (given, tidy) in [
            ("/var/kv", "/var/kv"),
            ("rel/./dir//x/", "rel/dir/x"),
            ("~/kv", "~/kv"),
            (".", "."),
            ("./", "."),
            ("/", "/"),
            ("//", "//"),
            ("///a", "/a"),
            ("//a/..", "//a/.."),
        ] {
            assert_eq!(tidy_directory(given), tidy, "{given}");
        }
    }

    #[test]
    fn unicode_blanks_around_a_handle_are_dropped() {
        let handle = Handle::parse("\u{3000}\u{1f}hf://buckets/a/b/c\u{a0}").unwrap();
        assert_eq!(handle.prefix, "c");
    }
}

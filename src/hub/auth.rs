//! Tokens: how they are held, and where they come from when nobody gave one.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use reqwest::header::HeaderValue;
use thiserror::Error as ThisError;

use super::Result;
use super::error::{Error, ErrorKind};

/// A text that neither `Debug` nor `Display` shows.
///
/// It may be empty: an empty token sends an empty bearer, which is not the same as no token.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself. Not for logs.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Where the client gets its token from. Asked before every request, so it may rotate.
#[async_trait]
pub(crate) trait TokenSource: fmt::Debug + Send + Sync {
    /// The token to send; `None` sends no `Authorization` at all.
    async fn token(&self) -> Result<Option<Secret>, Error>;

    /// The Hub answered 401 to the token of the last request. The source is asked again right
    /// after, and the request is repeated once if it then gives another token.
    fn rejected(&self) {}
}

/// A token that never changes.
#[derive(Debug, Clone)]
pub(crate) struct StaticToken(pub(crate) Option<Secret>);

#[async_trait]
impl TokenSource for StaticToken {
    async fn token(&self) -> Result<Option<Secret>, Error> {
        Ok(self.0.clone())
    }
}

#[derive(Debug, ThisError)]
enum AuthError {
    #[error(
        "cannot read the token file {}: {source}; mend it, or set HF_TOKEN, or set \
         HF_HUB_DISABLE_IMPLICIT_TOKEN=1 to go without", path.display()
    )]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the token holds a character that no HTTP header may hold (a line break, perhaps?)")]
    Header,
}

impl From<AuthError> for Error {
    fn from(error: AuthError) -> Self {
        Self::new(ErrorKind::Token, error.to_string()).with_source(error)
    }
}

/// The `Authorization` value for a token, marked so that HTTP libraries keep it out of their logs.
pub(super) fn bearer(token: &Secret) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose()))
        .map_err(|_| AuthError::Header)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The token that the environment holds, by the rules of the Hub's own clients: `HF_TOKEN`, else
/// the file `HF_TOKEN_PATH`, else `$HF_HOME/token`; none of them if
/// `HF_HUB_DISABLE_IMPLICIT_TOKEN` is true.
///
/// `env` looks a variable up. Reads a small file, blocking.
///
/// # Errors
///
/// A file that is there but cannot be read is an error that names it: going on without a token
/// would show as a puzzling 401 later.
pub(crate) fn implicit_token(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Secret>> {
    if env("HF_HUB_DISABLE_IMPLICIT_TOKEN").is_some_and(|value| is_truthy(&value)) {
        return Ok(None);
    }
    if let Some(token) = env("HF_TOKEN").as_deref().and_then(clean) {
        return Ok(Some(token));
    }
    match token_file(env) {
        Some(path) => Ok(read_token(&path)?),
        None => Ok(None),
    }
}

/// How the Hub's clients read a flag: `1 ON YES TRUE` in any case, everything else is false.
pub(crate) fn is_truthy(value: &str) -> bool {
    ["1", "ON", "YES", "TRUE"]
        .iter()
        .any(|truth| value.trim().eq_ignore_ascii_case(truth))
}

/// `None` if nothing says where a home folder would be.
fn token_file(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty());
    let home = || set("HOME").or_else(|| set("USERPROFILE"));
    let expand = |text: String| expand_home(text, home);
    if let Some(path) = set("HF_TOKEN_PATH") {
        return Some(expand(path));
    }
    let hf_home = match (set("HF_HOME"), set("XDG_CACHE_HOME")) {
        (Some(path), _) => expand(path),
        (None, Some(cache)) => expand(cache).join("huggingface"),
        (None, None) => Path::new(&home()?).join(".cache").join("huggingface"),
    };
    Some(hf_home.join("token"))
}

fn expand_home(text: String, home: impl Fn() -> Option<String>) -> PathBuf {
    let rest = match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
        _ => return PathBuf::from(text),
    };
    match home() {
        Some(home) => Path::new(&home).join(rest.trim_start_matches('/')),
        None => PathBuf::from(text),
    }
}

fn read_token(path: &Path) -> Result<Option<Secret>, AuthError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(clean(&text)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(source) => Err(AuthError::Unreadable {
            path: path.to_owned(),
            source,
        }),
    }
}

/// No file, or a file where a folder of its path should be.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Trimmed; nothing left means no token.
fn clean(text: &str) -> Option<Secret> {
    let text = text.trim();
    (!text.is_empty()).then(|| Secret::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(vars: &[(&str, &str)]) -> Result<Option<String>> {
        let env = |name: &str| {
            vars.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        };
        Ok(implicit_token(&env)?.map(|secret| secret.expose().to_owned()))
    }

    #[test]
    fn a_secret_is_never_shown() {
        let secret = Secret::new("hf_x");
        let shown = format!(
            "{secret:?} {secret} {:?}",
            StaticToken(Some(secret.clone()))
        );
        assert!(!shown.contains("hf_x"), "{shown}");
        let header = bearer(&secret).unwrap();
        assert_eq!(header.to_str().unwrap(), "Bearer hf_x");
        assert!(!format!("{header:?}").contains("hf_x"));
    }

    #[test]
    fn a_token_that_no_header_can_hold_is_refused_unseen() {
        let error = bearer(&Secret::new("hf_x\nInjected: 1")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Token);
        assert!(!format!("{error} {error:?}").contains("hf_x"));
        assert_eq!(
            bearer(&Secret::new("")).unwrap().to_str().unwrap(),
            "Bearer "
        );
    }

    #[test]
    fn the_places_are_asked_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        std::fs::create_dir_all(dir.path().join("home/.cache/huggingface")).unwrap();
        std::fs::create_dir_all(dir.path().join("xdg/huggingface")).unwrap();
        std::fs::create_dir_all(dir.path().join("hf")).unwrap();
        std::fs::write(at("file"), " from-file\n").unwrap();
        std::fs::write(at("hf/token"), "from-hf-home").unwrap();
        std::fs::write(at("xdg/huggingface/token"), "from-xdg").unwrap();
        std::fs::write(at("home/.cache/huggingface/token"), "from-home").unwrap();
        let (file, hf, xdg, home) = (at("file"), at("hf"), at("xdg"), at("home"));
        let mut vars = vec![
            ("HF_TOKEN", " from-env\n"),
            ("HF_TOKEN_PATH", &*file),
            ("HF_HOME", &*hf),
            ("XDG_CACHE_HOME", &*xdg),
            ("HOME", &*home),
        ];
        for expected in [
            "from-env",
            "from-file",
            "from-hf-home",
            "from-xdg",
            "from-home",
        ] {
            assert_eq!(token(&vars).unwrap().as_deref(), Some(expected));
            vars.remove(0);
        }
        assert_eq!(token(&vars).unwrap(), None);
        let tilde = [
            ("HF_TOKEN", "  "),
            ("HF_HOME", "~/.cache/huggingface"),
            ("HOME", &home),
        ];
        assert_eq!(token(&tilde).unwrap().as_deref(), Some("from-home"));
    }

    #[test]
    fn a_missing_file_is_no_token_and_an_unreadable_one_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().to_str().unwrap();
        let missing = dir.path().join("none");
        let missing = missing.to_str().unwrap();
        assert_eq!(token(&[("HF_TOKEN_PATH", missing)]).unwrap(), None);
        assert_eq!(token(&[("HF_HOME", missing)]).unwrap(), None);
        let error = token(&[("HF_TOKEN_PATH", folder)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Token);
        assert!(error.to_string().contains(folder), "{error}");
    }

    #[test]
    fn only_a_true_flag_switches_the_environment_off() {
        for (flag, expected) in [
            ("1", None),
            ("on", None),
            ("Yes", None),
            ("TRUE", None),
            ("0", Some("t")),
            ("false", Some("t")),
            ("", Some("t")),
            ("2", Some("t")),
        ] {
            let vars = [("HF_HUB_DISABLE_IMPLICIT_TOKEN", flag), ("HF_TOKEN", "t")];
            assert_eq!(token(&vars).unwrap().as_deref(), expected, "{flag:?}");
        }
    }
}

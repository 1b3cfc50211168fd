//! Who may do what: Hub tokens and their rights.

use axum::http::{HeaderMap, header};

use super::answer::Refusal;
use super::state::{Bucket, BucketName};

/// The user that [`LocalHub`](super::LocalHub) knows when no token is given.
pub(super) const DEFAULT_USER: &str = "local";
/// The organisation that this user owns besides the user's own namespace.
pub(super) const DEFAULT_ORG: &str = "my-org";
pub(super) const DEFAULT_TOKEN: &str = "hf_localowner0123456789";

/// A Hub token and what it may do.
///
/// ```
/// use hfbucket::local_hub::TokenGrant;
///
/// let reader = TokenGrant::new("hf_reader", "bob").read_only().owner_of("my-org");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct TokenGrant {
    pub(super) token: String,
    pub(super) user: String,
    pub(super) namespaces: Vec<String>,
    pub(super) write: bool,
}

impl TokenGrant {
    /// A token of `user` that may read and write in the user's own namespace.
    pub fn new(token: impl Into<String>, user: impl Into<String>) -> Self {
        let user = user.into();
        Self {
            token: token.into(),
            namespaces: vec![user.clone()],
            user,
            write: true,
        }
    }

    /// Gives the token the same right in another namespace, an organisation say.
    pub fn owner_of(mut self, namespace: impl Into<String>) -> Self {
        self.namespaces.push(namespace.into());
        self
    }

    /// The token may read what its owner may read, and write nothing.
    pub fn read_only(mut self) -> Self {
        self.write = false;
        self
    }

    pub(super) fn default_owner() -> Self {
        Self::new(DEFAULT_TOKEN, DEFAULT_USER).owner_of(DEFAULT_ORG)
    }

    fn owns(&self, namespace: &str) -> bool {
        self.namespaces.iter().any(|owned| owned == namespace)
    }
}

impl std::fmt::Debug for TokenGrant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenGrant")
            .field("user", &self.user)
            .field("namespaces", &self.namespaces)
            .field("write", &self.write)
            .finish_non_exhaustive()
    }
}

/// Whoever sent a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller<'a>(Option<&'a TokenGrant>);

impl<'a> Caller<'a> {
    /// Reads the `Authorization` header. A token that is not known is refused; none is fine so far.
    pub(super) fn of(grants: &'a [TokenGrant], headers: &HeaderMap) -> Result<Self, Refusal> {
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return Ok(Self(None));
        };
        value
            .to_str()
            .ok()
            .and_then(|value| value.strip_prefix("Bearer "))
            .and_then(|token| grants.iter().find(|grant| grant.token == token))
            .map(|grant| Self(Some(grant)))
            .ok_or_else(Refusal::bad_token)
    }

    pub(super) fn grant(self) -> Result<&'a TokenGrant, Refusal> {
        self.0.ok_or_else(Refusal::no_token)
    }

    pub(super) fn may_see(self, name: &BucketName, bucket: &Bucket) -> bool {
        !bucket.meta.private || self.0.is_some_and(|grant| grant.owns(&name.namespace))
    }

    /// The bucket, if the caller may read it. To those who may not it does not exist; to those
    /// without a token nobody says which of the two it is.
    pub(super) fn read<'b>(
        self,
        name: &BucketName,
        bucket: Option<&'b Bucket>,
    ) -> Result<&'b Bucket, Refusal> {
        match bucket {
            Some(bucket) if self.may_see(name, bucket) => Ok(bucket),
            _ if self.0.is_none() => Err(Refusal::no_token()),
            _ => Err(Refusal::no_bucket(name)),
        }
    }

    pub(super) fn write<'b>(
        self,
        name: &BucketName,
        bucket: Option<&'b Bucket>,
    ) -> Result<&'b Bucket, Refusal> {
        let bucket = self.read(name, bucket)?;
        self.write_in(&name.namespace)?;
        Ok(bucket)
    }

    pub(super) fn write_in(self, namespace: &str) -> Result<(), Refusal> {
        let grant = self.grant()?;
        if grant.write && grant.owns(namespace) {
            return Ok(());
        }
        Err(Refusal::forbidden(namespace))
    }

    /// The namespace that `me` stands for, where it does.
    pub(super) fn namespace(self, given: &str) -> Result<String, Refusal> {
        match given {
            "me" => Ok(self.grant()?.user.clone()),
            other => Ok(other.to_owned()),
        }
    }
}

//! The state on disk, in `redb`: written and synced before a change is answered.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use thiserror::Error;

use super::state::{BucketMeta, BucketName, Change, Entry, State};

/// `<namespace>/<bucket>` -> [`BucketMeta`] in JSON.
const BUCKETS: TableDefinition<&str, &str> = TableDefinition::new("buckets");
/// (id of the bucket, path) -> [`Entry`] in JSON. By id, so that a bucket moves without its entries.
const ENTRIES: TableDefinition<(&str, &str), &str> = TableDefinition::new("entries");

#[derive(Debug, Error)]
pub(super) enum Error {
    #[error("the hub's database: {0}")]
    Database(#[from] Box<redb::Error>),
    #[error("the hub's database holds what this version cannot read ({what}): {source}")]
    Format {
        what: String,
        source: serde_json::Error,
    },
    #[error("the hub's database names a bucket '{0}', which has no namespace")]
    Name(String),
}

/// redb has an error type per step; all of them convert into the general one.
fn db(error: impl Into<redb::Error>) -> Error {
    Error::Database(Box::new(error.into()))
}

#[derive(Debug)]
pub(super) struct Persist {
    database: Database,
}

impl Persist {
    /// Opens or creates the database, and reads all of it.
    pub(super) fn open(file: &Path) -> Result<(Self, State), Error> {
        let database = Database::create(file).map_err(db)?;
        let transaction = database.begin_write().map_err(db)?;
        transaction.open_table(BUCKETS).map_err(db)?;
        transaction.open_table(ENTRIES).map_err(db)?;
        transaction.commit().map_err(db)?;
        let state = read_all(&database)?;
        Ok((Self { database }, state))
    }

    /// Writes the changes in one transaction. `before` is the state that they start from.
    pub(super) fn write(&self, before: &State, changes: &[Change]) -> Result<(), Error> {
        let transaction = self.database.begin_write().map_err(db)?;
        let mut ids = Ids::default();
        for change in changes {
            write_change(&transaction, before, &mut ids, change)?;
        }
        transaction.commit().map_err(db)
    }
}

/// Ids of buckets that the changes themselves bring.
#[derive(Default)]
struct Ids(std::collections::HashMap<BucketName, String>);

impl Ids {
    fn of<'a>(&'a self, before: &'a State, name: &BucketName) -> Option<&'a str> {
        self.0
            .get(name)
            .or_else(|| before.buckets.get(name).map(|bucket| &bucket.meta.id))
            .map(String::as_str)
    }
}

fn write_change(
    transaction: &WriteTransaction,
    before: &State,
    ids: &mut Ids,
    change: &Change,
) -> Result<(), Error> {
    let mut buckets = transaction.open_table(BUCKETS).map_err(db)?;
    let mut entries = transaction.open_table(ENTRIES).map_err(db)?;
    match change {
        Change::Meta(name, meta) => {
            ids.0.insert(name.clone(), meta.id.clone());
            let json = to_json(meta, "a bucket")?;
            buckets
                .insert(name.to_string().as_str(), json.as_str())
                .map_err(db)?;
        }
        Change::Remove(name) => {
            if let Some(bucket) = before.buckets.get(name) {
                for path in bucket.entries.keys() {
                    entries
                        .remove((bucket.meta.id.as_str(), path.as_str()))
                        .map_err(db)?;
                }
            }
            buckets.remove(name.to_string().as_str()).map_err(db)?;
        }
        Change::Move { from, to } => {
            let moved = buckets
                .remove(from.to_string().as_str())
                .map_err(db)?
                .map(|meta| meta.value().to_owned());
            if let Some(meta) = moved {
                buckets
                    .insert(to.to_string().as_str(), meta.as_str())
                    .map_err(db)?;
            }
        }
        Change::Put {
            bucket,
            path,
            entry,
        } => {
            if let Some(id) = ids.of(before, bucket) {
                let json = to_json(entry, "an entry")?;
                entries
                    .insert((id, path.as_str()), json.as_str())
                    .map_err(db)?;
            }
        }
        Change::Delete { bucket, path } => {
            if let Some(id) = ids.of(before, bucket) {
                entries.remove((id, path.as_str())).map_err(db)?;
            }
        }
    }
    Ok(())
}

fn read_all(database: &Database) -> Result<State, Error> {
    let transaction = database.begin_read().map_err(db)?;
    let mut state = State::default();
    let mut names = std::collections::HashMap::new();
    for row in transaction
        .open_table(BUCKETS)
        .map_err(db)?
        .iter()
        .map_err(db)?
    {
        let (name, meta) = row.map_err(db)?;
        let name = parse_name(name.value())?;
        let meta: BucketMeta = from_json(meta.value(), || format!("bucket {name}"))?;
        names.insert(meta.id.clone(), name.clone());
        state.apply(Change::Meta(name, meta));
    }
    for row in transaction
        .open_table(ENTRIES)
        .map_err(db)?
        .iter()
        .map_err(db)?
    {
        let (key, entry) = row.map_err(db)?;
        let (id, path) = key.value();
        let entry: Entry = from_json(entry.value(), || format!("entry {path}"))?;
        if let Some(bucket) = names.get(id) {
            state.apply(Change::Put {
                bucket: bucket.clone(),
                path: path.to_owned(),
                entry,
            });
        }
    }
    Ok(state)
}

fn parse_name(text: &str) -> Result<BucketName, Error> {
    match text.split_once('/') {
        Some((namespace, name)) => Ok(BucketName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }),
        None => Err(Error::Name(text.to_owned())),
    }
}

fn to_json(value: &impl serde::Serialize, what: &str) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|source| Error::Format {
        what: what.to_owned(),
        source,
    })
}

fn from_json<T: serde::de::DeserializeOwned>(
    text: &str,
    what: impl Fn() -> String,
) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|source| Error::Format {
        what: what(),
        source,
    })
}

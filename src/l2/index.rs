//! Every key that the adapter knows, once: a row with its size, under a number.
//!
//! Cache, usage, locks and eviction order speak of keys by number, so that a tracked key costs its
//! row and some links, not four copies of its name. What many keys share (model, rank, group, salt:
//! a *family*) is kept once for all of them. A row lives as long as anyone [uses](User) it; then its
//! number may be given to another key.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use super::chunk_hash::ChunkHash;
use super::column::Column;
use super::key::ObjectKey;

/// A key's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct KeyId(pub(super) u32);

/// A salt's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct SaltId(pub(super) u32);

/// Why a row must live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum User {
    /// Its object is counted.
    Tracked = 1,
    /// The eviction policy remembers it though its object is gone.
    Ghost = 2,
    /// The metadata cache has an entry.
    Cached = 4,
    /// The store is being asked.
    Asked = 8,
    /// It is locked or being deleted.
    Locked = 16,
}

#[derive(Debug, Default)]
struct Row {
    hash: ChunkHash,
    /// The object's size in bytes, if it is tracked.
    size: u64,
    family: u32,
    /// The listing in which the object was last seen or written.
    stamp: u16,
    /// [`User`]s, a bit each.
    users: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Family {
    model_name: Arc<str>,
    kv_rank: u64,
    object_group_id: u64,
    cache_salt: Arc<str>,
}

#[derive(Debug)]
struct FamilyRow {
    family: Family,
    salt: SaltId,
    rows: usize,
}

#[derive(Debug)]
struct SaltRow {
    salt: Arc<str>,
    families: usize,
}

/// A hash table in parts, each of which grows for itself: growing looks at every entry, and of ten
/// million in one table that would take seconds, under the lock.
#[derive(Debug)]
struct Shards(Vec<HashTable<u32>>);

const SHARDS: u64 = 256;

impl Default for Shards {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| HashTable::new()).collect())
    }
}

impl Shards {
    /// By bits that the table itself does not look at first.
    fn of(hash: u64) -> usize {
        (hash >> 32 & (SHARDS - 1)) as usize
    }

    fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.0[Self::of(hash)]
            .find(hash, |row| is_it(*row))
            .copied()
    }

    fn remove(&mut self, hash: u64, row: u32) {
        let shard = &mut self.0[Self::of(hash)];
        if let Ok(entry) = shard.find_entry(hash, |other| *other == row) {
            entry.remove();
        }
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Index {
    hasher: DefaultHashBuilder,
    table: Shards,
    rows: Column<Row>,
    /// Rows that were ever used, and those of them that are free.
    end: u32,
    free: Vec<u32>,
    families: Vec<Option<FamilyRow>>,
    families_by_name: HashMap<Family, u32>,
    free_families: Vec<u32>,
    /// The family of the last new row, which mostly is that of the next.
    last_family: u32,
    salts: Vec<Option<SaltRow>>,
    salts_by_name: HashMap<Arc<str>, SaltId>,
    free_salts: Vec<u32>,
}

impl Family {
    fn of(key: &ObjectKey) -> Self {
        Self {
            model_name: Arc::clone(key.model()),
            kv_rank: key.kv_rank(),
            object_group_id: key.object_group_id(),
            cache_salt: Arc::clone(key.salt()),
        }
    }

    fn has(&self, key: &ObjectKey) -> bool {
        self.kv_rank == key.kv_rank()
            && self.object_group_id == key.object_group_id()
            && *self.model_name == *key.model_name()
            && *self.cache_salt == *key.cache_salt()
    }
}

impl Index {
    /// The number of a key that has a row.
    pub(super) fn find(&self, key: &ObjectKey) -> Option<KeyId> {
        self.table
            .find(self.hash_of_key(key), |row| self.is_row_of(row, key))
            .map(KeyId)
    }

    /// The key's number, with a new row if it has none; the row lives until the use ends.
    ///
    /// # Panics
    ///
    /// With 2^32 keys.
    pub(super) fn claim(&mut self, key: &ObjectKey, user: User) -> KeyId {
        let id = self.find(key).unwrap_or_else(|| self.insert(key));
        self.keep(id, user);
        id
    }

    /// As [`claim`](Self::claim) for a tracked key; also the size that it had if it was tracked before.
    pub(super) fn track(&mut self, key: &ObjectKey) -> (KeyId, Option<u64>) {
        let id = self.find(key).unwrap_or_else(|| self.insert(key));
        let before = self.size(id);
        self.keep(id, User::Tracked);
        (id, before)
    }

    /// One more use of a row.
    pub(super) fn keep(&mut self, id: KeyId, user: User) {
        if let Some(row) = self.rows.get_mut(id.0) {
            row.users |= user as u8;
        }
        debug_assert!(
            self.table
                .find(self.hash_of_row(id.0), |row| row == id.0)
                .is_some(),
            "a row that is free cannot be kept"
        );
    }

    /// Ends a use; the last one frees the row.
    pub(super) fn release(&mut self, id: KeyId, user: User) {
        let Some(row) = self.rows.get_mut(id.0) else {
            return;
        };
        let before = row.users;
        row.users &= !(user as u8);
        if before != 0 && row.users == 0 {
            self.remove(id);
        }
    }

    /// Whether the row is used so.
    pub(super) fn is(&self, id: KeyId, user: User) -> bool {
        self.rows
            .get(id.0)
            .is_some_and(|row| row.users & user as u8 != 0)
    }

    /// The size of a tracked key.
    pub(super) fn size(&self, id: KeyId) -> Option<u64> {
        let row = self.rows.get(id.0)?;
        (row.users & User::Tracked as u8 != 0).then_some(row.size)
    }

    /// Notes the size of a key and the listing in which it was seen or written.
    pub(super) fn set(&mut self, id: KeyId, size: u64, stamp: u16) {
        if let Some(row) = self.rows.get_mut(id.0) {
            (row.size, row.stamp) = (size, stamp);
        }
    }

    /// The listing in which the key was last seen or written.
    pub(super) fn stamp(&self, id: KeyId) -> u16 {
        self.rows.get(id.0).map_or(0, |row| row.stamp)
    }

    /// The salt of a key that has a row.
    pub(super) fn salt_of(&self, id: KeyId) -> SaltId {
        self.rows
            .get(id.0)
            .and_then(|row| self.family(row.family))
            .map_or(SaltId(u32::MAX), |family| family.salt)
    }

    /// The salt's text.
    pub(super) fn salt(&self, id: SaltId) -> Option<&Arc<str>> {
        self.salts.get(id.0 as usize)?.as_ref().map(|row| &row.salt)
    }

    /// The number of a salt that any row has.
    pub(super) fn find_salt(&self, salt: &str) -> Option<SaltId> {
        self.salts_by_name.get(salt).copied()
    }

    /// The key of a row in use.
    pub(super) fn key(&self, id: KeyId) -> Option<ObjectKey> {
        let row = self.rows.get(id.0).filter(|row| row.users != 0)?;
        let family = &self.family(row.family)?.family;
        Some(ObjectKey::from_parts(
            Arc::clone(&family.model_name),
            family.kv_rank,
            family.object_group_id,
            row.hash.clone(),
            Arc::clone(&family.cache_salt),
        ))
    }

    /// Numbers below this were given to keys at some time; rows keep theirs.
    pub(super) fn end(&self) -> u32 {
        self.end
    }

    #[cfg(test)]
    pub(super) fn rows_in_use(&self) -> usize {
        self.table.0.iter().map(HashTable::len).sum()
    }

    fn family(&self, at: u32) -> Option<&FamilyRow> {
        self.families.get(at as usize)?.as_ref()
    }

    fn is_row_of(&self, row: u32, key: &ObjectKey) -> bool {
        self.rows.get(row).is_some_and(|row| {
            row.hash.as_ref() == key.chunk_hash()
                && self
                    .family(row.family)
                    .is_some_and(|family| family.family.has(key))
        })
    }

    /// The same for a key and for its row.
    fn hash_of_key(&self, key: &ObjectKey) -> u64 {
        self.hasher.hash_one((
            key.model_name(),
            (key.kv_rank(), key.object_group_id(), key.cache_salt()),
            key.chunk_hash(),
        ))
    }

    fn hash_of_row(&self, row: u32) -> u64 {
        let Some(row) = self.rows.get(row) else {
            return 0;
        };
        self.family(row.family)
            .map_or(0, |FamilyRow { family, .. }| {
                self.hasher.hash_one((
                    family.model_name.as_ref(),
                    (
                        family.kv_rank,
                        family.object_group_id,
                        family.cache_salt.as_ref(),
                    ),
                    row.hash.as_ref(),
                ))
            })
    }

    fn insert(&mut self, key: &ObjectKey) -> KeyId {
        let hash = self.hash_of_key(key);
        let at = self.free.pop().unwrap_or_else(|| {
            let at = self.end;
            self.end = at.checked_add(1).expect("fewer than 2^32 keys");
            at
        });
        let family = self.family_number(key);
        *self.rows.entry(at) = Row {
            hash: key.hash().clone(),
            family,
            ..Row::default()
        };
        // The shard asks for the hashes of its rows when it grows.
        let shard = Shards::of(hash);
        let mut table = std::mem::take(&mut self.table.0[shard]);
        table.insert_unique(hash, at, |row| self.hash_of_row(*row));
        self.table.0[shard] = table;
        KeyId(at)
    }

    fn remove(&mut self, id: KeyId) {
        let hash = self.hash_of_row(id.0);
        self.table.remove(hash, id.0);
        if let Some(row) = self.rows.get_mut(id.0) {
            let family = std::mem::take(row).family;
            self.leave_family(family);
        }
        self.free.push(id.0);
    }

    /// The family's number, counting one more row of it.
    fn family_number(&mut self, key: &ObjectKey) -> u32 {
        if let Some(Some(last)) = self.families.get_mut(self.last_family as usize)
            && last.family.has(key)
        {
            last.rows += 1;
            return self.last_family;
        }
        self.last_family = self.other_family_number(Family::of(key));
        self.last_family
    }

    fn other_family_number(&mut self, family: Family) -> u32 {
        if let Some(at) = self.families_by_name.get(&family).copied() {
            if let Some(Some(row)) = self.families.get_mut(at as usize) {
                row.rows += 1;
            }
            return at;
        }
        let salt = self.salt_number(&family.cache_salt);
        let row = FamilyRow {
            family: family.clone(),
            salt,
            rows: 1,
        };
        let at = put(&mut self.families, &mut self.free_families, row);
        self.families_by_name.insert(family, at);
        at
    }

    fn leave_family(&mut self, at: u32) {
        let Some(slot) = self.families.get_mut(at as usize) else {
            return;
        };
        if let Some(row) = slot {
            row.rows = row.rows.saturating_sub(1);
        }
        if let Some(row) = slot.take_if(|row| row.rows == 0) {
            self.families_by_name.remove(&row.family);
            self.free_families.push(at);
            self.leave_salt(row.salt);
        }
    }

    fn salt_number(&mut self, salt: &Arc<str>) -> SaltId {
        if let Some(id) = self.salts_by_name.get(salt).copied() {
            if let Some(Some(row)) = self.salts.get_mut(id.0 as usize) {
                row.families += 1;
            }
            return id;
        }
        let row = SaltRow {
            salt: Arc::clone(salt),
            families: 1,
        };
        let id = SaltId(put(&mut self.salts, &mut self.free_salts, row));
        self.salts_by_name.insert(Arc::clone(salt), id);
        id
    }

    fn leave_salt(&mut self, id: SaltId) {
        let Some(slot) = self.salts.get_mut(id.0 as usize) else {
            return;
        };
        if let Some(row) = slot {
            row.families = row.families.saturating_sub(1);
        }
        if let Some(row) = slot.take_if(|row| row.families == 0) {
            self.salts_by_name.remove(&row.salt);
            self.free_salts.push(id.0);
        }
    }
}

/// Puts a value into a free place, or a new one.
fn put<T>(places: &mut Vec<Option<T>>, free: &mut Vec<u32>, value: T) -> u32 {
    if let Some(at) = free.pop()
        && let Some(place) = places.get_mut(at as usize)
    {
        *place = Some(value);
        return at;
    }
    places.push(Some(value));
    // There are fewer families than keys, whose number is checked.
    u32::try_from(places.len() - 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(model: &str, hash: &[u8], salt: &str) -> ObjectKey {
        ObjectKey::new(model, 1, hash)
            .unwrap()
            .with_cache_salt(salt)
            .unwrap()
    }

    #[test]
    fn a_row_lives_as_long_as_it_is_used() {
        let mut index = Index::default();
        let one = key("m", &[1; 32], "a");
        let id = index.claim(&one, User::Tracked);
        assert_eq!(index.claim(&one, User::Cached), id);
        index.set(id, 5, 3);
        assert_eq!((index.size(id), index.stamp(id)), (Some(5), 3));
        index.release(id, User::Tracked);
        assert_eq!((index.size(id), index.find(&one)), (None, Some(id)));
        assert_eq!(index.key(id), Some(one.clone()));
        index.release(id, User::Cached);
        assert_eq!((index.find(&one), index.key(id)), (None, None));
        // Ending what was not begun is nothing.
        index.release(id, User::Cached);
        // The number goes to the next key.
        assert_eq!(index.claim(&key("n", &[], ""), User::Locked), id);
        assert_eq!(index.end(), 1);
    }

    #[test]
    fn all_fields_tell_keys_apart() {
        let mut index = Index::default();
        let mut keys = vec![
            key("m", &[1], ""),
            key("m", &[1], "a"),
            key("n", &[1], ""),
            key("m", &[1, 0], ""),
            key("m", &[], ""),
            // Longer than what lies within a row.
            key("m", &[7; 100], ""),
            key("m", &[1], "").with_object_group(1),
        ];
        keys.push(ObjectKey::new("m", 2, [1]).unwrap());
        let ids: Vec<_> = keys
            .iter()
            .map(|key| index.claim(key, User::Tracked))
            .collect();
        for (key, id) in keys.iter().zip(&ids) {
            assert_eq!(index.find(key), Some(*id));
            assert_eq!(index.key(*id).as_ref(), Some(key));
        }
        assert_eq!(index.end() as usize, keys.len());
    }

    #[test]
    fn families_and_salts_go_with_their_last_key() {
        let mut index = Index::default();
        let first = index.claim(&key("m", &[1], "a"), User::Tracked);
        let second = index.claim(&key("m", &[2], "a"), User::Tracked);
        let other = index.claim(&key("n", &[2], "a"), User::Tracked);
        let salt = index.find_salt("a").unwrap();
        assert_eq!((index.salt_of(first), index.salt_of(other)), (salt, salt));
        for id in [first, second] {
            index.release(id, User::Tracked);
        }
        assert_eq!(index.families_by_name.len(), 1);
        assert_eq!(index.salt(salt).unwrap().as_ref(), "a");
        index.release(other, User::Tracked);
        assert_eq!((index.find_salt("a"), index.salt(salt)), (None, None));
        assert!(index.families_by_name.is_empty() && index.rows_in_use() == 0);
    }

    #[test]
    fn a_row_is_small() {
        assert_eq!(size_of::<Row>(), 56);
    }
}

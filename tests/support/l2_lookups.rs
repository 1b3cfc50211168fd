//! The L2 suite: who asks the store what, and what is told to listeners.

use hfbucket::l2::{Event, EventKind, Events, Notice, ObjectKey};
use serde_json::json;

use crate::l2_backends::Harness;
use crate::l2_faults::{Fault, Gate, Op};
use crate::l2_helpers::{batch, find, keys, store};

pub async fn a_prefix_lookup_stops_at_the_first_miss(harness: &Harness) {
    let keys = keys(400);
    let adapter = harness.adapter(json!({})).await;
    store(&adapter, &keys[..70], 10).await;
    store(&adapter, &keys[80..90], 10).await;
    // One that knows nothing asks in windows of 64 and 256.
    let reader = harness.adapter(json!({})).await;
    let before = harness.faults.calls(Op::Head);
    let found = reader.lookup_prefix_and_lock(&keys).await;
    assert_eq!((found.prefix_hits(), found.hits()), (70, 70));
    assert_eq!(found.bitmap.len(), 400);
    assert_eq!(found.guard.keys(), &keys[..70]);
    assert_eq!(reader.status().locked_key_count, 70);
    assert_eq!(harness.faults.calls(Op::Head) - before, 320);
    drop(found);
    assert_eq!(reader.status().locked_key_count, 0);

    // A miss at the start saves the rest.
    let before = harness.faults.calls(Op::Head);
    let found = reader.lookup_prefix_and_lock(&keys[320..]).await;
    assert_eq!((found.prefix_hits(), found.bitmap.len()), (0, 80));
    assert_eq!(harness.faults.calls(Op::Head) - before, 64);
    let empty = reader.lookup_prefix_and_lock(&[]).await;
    assert!(empty.bitmap.is_empty());
}

pub async fn concurrent_lookups_share_one_question(harness: &Harness) {
    const LOOKUPS: usize = 8;
    let keys = keys(3 + LOOKUPS);
    let adapter = harness.adapter(json!({})).await;
    store(&adapter, &keys[..3], 10).await;
    let reader = harness.adapter(json!({"metadata_cache_ttl_secs": 0})).await;
    let before = harness.faults.calls(Op::Head);
    let gate = Gate::default();
    harness
        .faults
        .inject(Op::Head, None, 3 + LOOKUPS, Fault::Hold(gate.clone()));
    let lookups: Vec<_> = (0..LOOKUPS)
        .map(|n| {
            // One key is its own: when that is asked for, the lookup has joined the others for the
            // rest, since all keys of a lookup are planned at once.
            let wanted = [&keys[..3], &keys[3 + n..4 + n]].concat();
            let reader = reader.clone();
            tokio::spawn(async move { reader.lookup_and_lock(&wanted).await })
        })
        .collect();
    gate.arrivals(3 + LOOKUPS as u32).await;
    gate.open();
    for lookup in lookups {
        let found = lookup.await.unwrap();
        assert_eq!((found.prefix_hits(), found.errors.len()), (3, 0));
    }
    assert_eq!(harness.faults.calls(Op::Head) - before, 3 + LOOKUPS);
    // Later ones ask anew, since nothing is remembered.
    assert_eq!(find(&reader, &keys[..3]).await, [true; 3]);
    assert_eq!(harness.faults.calls(Op::Head) - before, 6 + LOOKUPS);
}

pub async fn a_cancelled_lookup_does_not_disturb_those_who_joined(harness: &Harness) {
    let keys = keys(2);
    let adapter = harness.adapter(json!({})).await;
    store(&adapter, &keys[..1], 10).await;
    let reader = harness.adapter(json!({})).await;
    let before = harness.faults.calls(Op::Head);
    let gate = Gate::default();
    harness
        .faults
        .inject(Op::Head, None, 2, Fault::Hold(gate.clone()));
    let lookup = |keys: &[ObjectKey]| {
        let (reader, keys) = (reader.clone(), keys.to_vec());
        tokio::spawn(async move { reader.lookup_and_lock(&keys).await.hits() })
    };
    let first = lookup(&keys[..1]);
    gate.arrivals(1).await;
    // When its own key is asked for, it has joined the first for the other.
    let second = lookup(&keys);
    gate.arrivals(1).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    gate.open();
    assert_eq!(second.await.unwrap(), 1);
    assert_eq!(harness.faults.calls(Op::Head) - before, 2);
    assert_eq!(reader.status().locked_key_count, 0);
}

pub async fn a_question_older_than_a_store_is_not_joined(harness: &Harness) {
    let keys = keys(1);
    let adapter = harness.adapter(json!({"metadata_cache_ttl_secs": 0})).await;
    let gate = Gate::default();
    harness
        .faults
        .inject(Op::Head, None, 1, Fault::Hold(gate.clone()));
    let early = tokio::spawn({
        let (adapter, keys) = (adapter.clone(), keys.clone());
        async move { adapter.lookup_and_lock(&keys).await.hits() }
    });
    gate.arrivals(1).await;
    store(&adapter, &keys, 10).await;
    // The first question was answered before the store: it would be a miss.
    assert_eq!(find(&adapter, &keys).await, [true]);
    gate.open();
    early.await.unwrap();
    assert_eq!(find(&adapter, &keys).await, [true]);
}

fn next(events: &mut Events) -> Event {
    match events.try_next() {
        Some(Notice::Event(event)) => (*event).clone(),
        other => panic!("{other:?}"),
    }
}

fn told(event: &Event) -> Vec<(ObjectKey, u64)> {
    let entries = event.entries.iter();
    entries
        .map(|entry| (entry.key.clone(), entry.bytes))
        .collect()
}

pub async fn events_tell_what_happened_in_order(harness: &Harness) {
    let keys = keys(4);
    let adapter = harness.adapter(json!({})).await;
    let mut events = adapter.events();
    store(&adapter, &keys[..2], 10).await;
    let event = next(&mut events);
    assert_eq!(event.kind, EventKind::Stored);
    assert_eq!(told(&event), [(keys[0].clone(), 10), (keys[1].clone(), 10)]);
    assert_eq!(event.entries[0].replaced_bytes, None);
    store(&adapter, &keys[..1], 30).await;
    let event = next(&mut events);
    assert_eq!(
        (event.entries[0].bytes, event.entries[0].replaced_bytes),
        (30, Some(10))
    );

    // A failed store tells nothing.
    harness.faults.inject(Op::Put, None, 1, Fault::Refuse);
    assert!(!adapter.store(batch(&keys[3..], 5)).await.is_ok());
    let wanted = [&keys[1], &keys[3], &keys[0], &keys[1]].map(ObjectKey::clone);
    assert_eq!(find(&adapter, &wanted).await, [true, false, true, true]);
    let event = next(&mut events);
    assert_eq!(event.kind, EventKind::Accessed);
    assert_eq!(
        told(&event),
        [
            (keys[1].clone(), 10),
            (keys[0].clone(), 30),
            (keys[1].clone(), 10)
        ],
        "in order, with duplicates"
    );

    harness.put(&adapter, &keys[2], vec![1; 7]).await;
    harness.remove(&adapter, &keys[1]).await;
    adapter.resync().await.unwrap();
    let event = next(&mut events);
    assert_eq!(
        (event.kind, told(&event)),
        (EventKind::Recovered, vec![(keys[2].clone(), 7)])
    );
    let event = next(&mut events);
    assert_eq!(
        (event.kind, told(&event)),
        (EventKind::Vanished, vec![(keys[1].clone(), 10)])
    );

    adapter.delete(&keys[..1]).await;
    let event = next(&mut events);
    assert_eq!(
        (event.kind, told(&event)),
        (EventKind::Deleted, vec![(keys[0].clone(), 30)])
    );

    // A slow listener is told how much it missed, and goes on after.
    for _ in 0..1030 {
        assert_eq!(find(&adapter, &keys[2..3]).await, [true]);
    }
    assert_eq!(events.try_next(), Some(Notice::Missed { events: 6 }));
    assert_eq!(next(&mut events).kind, EventKind::Accessed);
    adapter.close().await;
    let mut rest = 0;
    while let Some(notice) = events.next().await {
        assert!(matches!(notice, Notice::Event(_)));
        rest += 1;
    }
    assert_eq!(rest, 1023);
}

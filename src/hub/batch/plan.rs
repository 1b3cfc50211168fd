//! Which operation goes into which request.

use std::collections::HashMap;

use crate::hub::types::BatchOp;

/// Operations per request: what the Hub's own clients send. The server documents no limit.
const CHUNK: usize = 1000;

/// Cuts a batch into requests: at most [`CHUNK`] operations each, no path twice in one, additions
/// before deletions.
///
/// Reports name paths, not lines, and what the Hub does with one path twice is not documented. So
/// the second operation on a path goes into a later request than the first, which also keeps their
/// order. Paths are independent of each other, so the rest may move.
pub(super) fn plan(ops: &[BatchOp]) -> Vec<Vec<usize>> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let mut waves: Vec<Vec<usize>> = Vec::new();
    for (index, op) in ops.iter().enumerate() {
        let earlier = seen.entry(op.path()).or_default();
        if *earlier == waves.len() {
            waves.push(Vec::new());
        }
        waves[*earlier].push(index);
        *earlier += 1;
    }
    let mut chunks: Vec<Vec<usize>> = Vec::new();
    for wave in waves {
        chunks.extend(wave.chunks(CHUNK).map(<[usize]>::to_vec));
    }
    for chunk in &mut chunks {
        // Stable, so that the order among additions and among deletions stays.
        chunk.sort_by_key(|index| ops[*index].is_delete());
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::batch::tests::{add, delete};

    #[test]
    fn additions_go_before_deletions() {
        let ops = [delete("a"), add("b", "1"), delete("c"), add("d", "2")];
        assert_eq!(plan(&ops), [vec![1, 3, 0, 2]]);
        assert!(plan(&[]).is_empty());
    }

    #[test]
    fn a_path_is_never_twice_in_a_request_and_keeps_its_order() {
        let ops = [
            delete("a"),
            add("a", "1"),
            add("b", "1"),
            delete("a"),
            add("b", "2"),
        ];
        assert_eq!(plan(&ops), [vec![2, 0], vec![1, 4], vec![3]]);
    }

    #[test]
    fn a_request_holds_a_thousand_operations() {
        let mut ops: Vec<_> = (0..2500).map(|i| add(&i.to_string(), "1")).collect();
        ops.push(delete("0"));
        let sizes: Vec<_> = plan(&ops).iter().map(Vec::len).collect();
        assert_eq!(sizes, [1000, 1000, 500, 1]);
    }
}

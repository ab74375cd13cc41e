//! How far several answers agree.

use serde_json::Value;

/// The share of pairs that are equal; 1 of a single answer. The order of keys does not matter.
pub(super) fn agreement(samples: &[Value]) -> f64 {
    let pairs = || {
        samples
            .iter()
            .enumerate()
            .flat_map(|(at, one)| samples.iter().skip(at + 1).map(move |other| (one, other)))
    };
    let (all, equal) = (pairs().count(), pairs().filter(|(one, other)| one == other).count());
    // At most a few hundred samples: far below where the conversion rounds.
    if all == 0 { 1.0 } else { equal as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a111_the_share_of_equal_pairs() {
        let of = |samples: &[i32]| {
            agreement(&samples.iter().map(|sample| json!({ "n": sample })).collect::<Vec<_>>())
        };
        assert_eq!((of(&[1, 1, 1]), of(&[1, 2, 3]), of(&[1])), (1.0, 0.0, 1.0));
        assert!((of(&[1, 1, 2, 3]) - 1.0 / 6.0).abs() < 1e-9);
        assert_eq!(agreement(&[json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1})]), 1.0);
    }
}

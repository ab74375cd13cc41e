//! Identities: of runs, of tool calls, and positions in a log.

use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// Position of a message in its root's log, from 0, gapless.
pub type Seq = u64;

/// Identity of one run: a node of the tree.
///
/// Minted by the core ([`IdMint`]), unique across processes and restarts, and it sorts by the time of its
/// birth. A log that another program wrote may use any string: such an id is kept as it is.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(Repr);

/// A canonical id is two words, so that a tree of many runs compares and hashes numbers, not strings.
/// The canonical form and the text form of the same id never coexist: parsing decides for both.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Repr {
    /// High and low half: as one number it would be aligned to 16 bytes and make every id a word larger.
    Canonical(u64, u64),
    Text(Arc<str>),
}

impl RunId {
    /// Reads an id. Never fails: what is not a lower-case hyphenated UUID is kept as text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if let Ok(uuid) = Uuid::try_parse(text) {
            let mut buffer = Uuid::encode_buffer();
            // Other spellings of the same UUID stay text: writing them back must give the same bytes.
            if uuid.hyphenated().encode_lower(&mut buffer) == text {
                let (high, low) = uuid.as_u64_pair();
                return Self(Repr::Canonical(high, low));
            }
        }
        Self(Repr::Text(text.into()))
    }

    /// The last eight characters: enough for a person to tell runs of one tree apart.
    #[must_use]
    pub fn short(&self) -> String {
        if let Repr::Canonical(_, low) = &self.0 {
            return format!("{:08x}", low & u64::from(u32::MAX));
        }
        let text = self.to_string();
        let start = text.char_indices().rev().nth(7).map_or(0, |(at, _)| at);
        text.get(start..).unwrap_or_default().to_owned()
    }
}

impl From<&str> for RunId {
    fn from(text: &str) -> Self {
        Self::parse(text)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Canonical(high, low) => {
                let mut buffer = Uuid::encode_buffer();
                f.write_str(Uuid::from_u64_pair(*high, *low).hyphenated().encode_lower(&mut buffer))
            }
            Repr::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunId({self})")
    }
}

impl Serialize for RunId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Repr::Canonical(high, low) => {
                let mut buffer = Uuid::encode_buffer();
                serializer
                    .serialize_str(Uuid::from_u64_pair(*high, *low).hyphenated().encode_lower(&mut buffer))
            }
            Repr::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Ok(Self::parse(&text))
    }
}

/// The provider's label of a tool call.
///
/// A label, never a key: providers reuse them across runs and even inside one turn. The key of a call is
/// the run and the call's index in it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolCallId(Arc<str>);

impl ToolCallId {
    /// Wraps a provider's label.
    #[must_use]
    pub fn new(label: impl Into<Arc<str>>) -> Self {
        Self(label.into())
    }

    /// The label.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ToolCallId {
    fn from(label: &str) -> Self {
        Self::new(label)
    }
}

impl fmt::Display for ToolCallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ToolCallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToolCallId({:?})", &*self.0)
    }
}

/// Mints [`RunId`]s: version 7 UUIDs whose last 62 bits are a bijection of a counter, keyed by a seed.
///
/// Two ids of one mint never collide; two mints collide only if their seeds (64 random bits) and a
/// counter do, in the same millisecond. A mint made from a given seed leaves the wall clock out: the same
/// seed gives the same ids.
#[derive(Debug)]
pub struct IdMint {
    seed: u64,
    reproducible: bool,
    next: AtomicU64,
}

impl IdMint {
    /// A mint with a seed from the operating system's generator and the time.
    #[must_use]
    pub fn random() -> Self {
        let (high, low) = Uuid::now_v7().as_u64_pair();
        Self { seed: mix(high) ^ low, reproducible: false, next: AtomicU64::new(0) }
    }

    /// A mint whose ids depend on `seed` alone.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { seed, reproducible: true, next: AtomicU64::new(0) }
    }

    /// The next id. `unix_millis` is its time, ignored by a seeded mint.
    #[must_use]
    pub fn mint(&self, unix_millis: u64) -> RunId {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        // A seeded mint counts in the time field too, so that ids still sort by birth.
        let millis = if self.reproducible { count >> 12 } else { unix_millis };
        let high = (millis & 0xFFFF_FFFF_FFFF) << 16 | 0x7000 | count & 0xFFF;
        let low = 1 << 63 | mix(self.seed.wrapping_add(count)) >> 2;
        RunId(Repr::Canonical(high, low))
    }

    /// Whether this mint made an id: then its run was born in this process. Inverts the bijection, so nothing is remembered.
    #[must_use]
    pub fn minted(&self, id: &RunId) -> bool {
        let Repr::Canonical(high, low) = id.0 else { return false };
        let (order, tail) = (high & 0xFFF, low & (u64::MAX >> 2));
        // Two bits of the tail gave way to the version: one of four values was the one.
        (0..4).any(|lost| {
            let count = unmix(tail << 2 | lost).wrapping_sub(self.seed);
            count & 0xFFF == order && count < self.next.load(Ordering::Relaxed)
        })
    }

    /// A number in `0..bound` that depends on the seed and on `salt`: jitter that a seed reproduces.
    #[must_use]
    pub fn jitter(&self, salt: u64, bound: u64) -> u64 {
        if bound == 0 { 0 } else { mix(self.seed ^ mix(salt)) % bound }
    }
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
const FIRST: u64 = 0xBF58_476D_1CE4_E5B9;
const SECOND: u64 = 0x94D0_49BB_1331_11EB;

/// A fast hash for maps whose ids were all minted by one [`IdMint`]: nobody chooses them so that they collide.
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // As rustc's own hasher: a rotation, so that both halves count, and a multiplier that spreads them upwards.
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0xF135_7AEA_2E62_A9C5);
    }

    fn write_isize(&mut self, _discriminant: isize) {}
}

/// One step of the SplitMix64 generator (Steele, Lea, Flood 2014): a bijection that spreads every bit.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_mul(GOLDEN).wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(FIRST);
    z = (z ^ (z >> 27)).wrapping_mul(SECOND);
    z ^ (z >> 31)
}

/// The value that [`mix`] made this of.
fn unmix(mixed: u64) -> u64 {
    let z = unshift(mixed, 31).wrapping_mul(const { inverse(SECOND) });
    let z = unshift(z, 27).wrapping_mul(const { inverse(FIRST) });
    unshift(z, 30).wrapping_sub(GOLDEN).wrapping_mul(const { inverse(GOLDEN) })
}

/// Undoes `x ^ (x >> by)`, for shifts by at least a third of the bits.
fn unshift(shifted: u64, by: u32) -> u64 {
    shifted ^ (shifted >> by) ^ (shifted >> (2 * by))
}

/// The inverse of an odd number modulo 2^64, by Newton's iteration: each step doubles the correct bits, from three.
const fn inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut correct_bits = 3;
    while correct_bits < u64::BITS {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        correct_bits *= 2;
    }
    inverse
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_unique_sorted_and_canonical() {
        let mint = IdMint::random();
        let ids: Vec<RunId> = (0..5000).map(|n| mint.mint(1_700_000_000_000 + n / 4000)).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        assert!(ids.get(..4000).unwrap().is_sorted());
        let text = ids[7].to_string();
        assert_eq!(Uuid::parse_str(&text).unwrap().get_version_num(), 7);
        assert_eq!(RunId::parse(&text), ids[7]);
        assert!(text.ends_with(&ids[7].short()));
        let others = ["00000000-0000-0000-0000-00000000000f", "root", "a-longer-id", ""]
            .map(|id| RunId::parse(id).short());
        assert_eq!(others, ["0000000f", "root", "onger-id", ""]);
    }

    #[test]
    fn a_seed_reproduces_ids() {
        let (one, two) = (IdMint::seeded(7), IdMint::seeded(7));
        assert_eq!(one.mint(1), two.mint(99));
        assert_eq!(one.mint(2), two.mint(3));
        assert_ne!(IdMint::seeded(8).mint(1), IdMint::seeded(7).mint(1));
    }

    #[test]
    fn a_mint_knows_its_own_ids() {
        for (mint, other) in [(IdMint::random(), IdMint::random()), (IdMint::seeded(1), IdMint::seeded(2))] {
            for n in 0..10_000 {
                assert!(mint.minted(&mint.mint(n)));
                assert!(!mint.minted(&other.mint(n)));
            }
        }
        assert!(!IdMint::random().minted(&RunId::parse("run-1")));
    }

    #[test]
    fn foreign_ids_survive() {
        for text in ["run-1", "", "018F0000-0000-7000-8000-000000000000", "018f0000000070008000000000000000"]
        {
            assert_eq!(RunId::parse(text).to_string(), text);
        }
    }
}

//! Random-looking numbers as a pure function of what they are for.
//!
//! A generator with state would make a row depend on how many rows were read before it; and the
//! generators of `rand` may change between versions, which would change every recorded demo.

/// Mixes a seed with what the number is for (SplitMix64).
pub(super) const fn mix(seed: u64, salt: u64) -> u64 {
    let mut z = seed.wrapping_add(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Mixes with a signed number, such as a step of time.
pub(super) const fn mix_step(seed: u64, step: i64) -> u64 {
    mix(seed, step.cast_unsigned())
}

/// Evenly spread over 0 to 1, 1 excluded.
pub(super) fn unit(hash: u64) -> f64 {
    // 32 bits are plenty for believable noise and convert without loss.
    f64::from(u32::try_from(hash >> 32).unwrap_or(u32::MAX)) / 4_294_967_296.0
}

/// Evenly spread over `low` to `high`.
pub(super) fn between(hash: u64, low: f64, high: f64) -> f64 {
    low + (high - low) * unit(hash)
}

/// Four small noises from one hash, each evenly spread over -1 to 1.
pub(super) fn jitters(hash: u64) -> [f64; 4] {
    [0, 16, 32, 48].map(|shift| {
        let bits = u16::try_from((hash >> shift) & 0xffff).unwrap_or(0);
        f64::from(bits) / 32_767.5 - 1.0
    })
}

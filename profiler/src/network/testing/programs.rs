//! Random numbers that are always the same.

/// Deterministic noise: xorshift.
pub(in crate::network) struct Noise(pub(in crate::network) u64);

impl Noise {
    pub(in crate::network) fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    pub(in crate::network) fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

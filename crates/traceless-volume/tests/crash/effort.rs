//! How thoroughly runs are crashed.

/// How thoroughly to check.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Up to this number of in-flight pieces all subsets are tried.
    pub exhaustive_max: usize,
    /// Random subsets, if there are more pieces.
    pub subsets: usize,
    /// Most places at which each piece is torn. A short piece is torn between any two sectors.
    pub cuts: u64,
    /// Random images with torn pieces, for each sync epoch.
    pub torn: usize,
    /// One image in this many is also crashed during its recovery.
    pub again_every: u64,
    /// One image in this many is opened a second time, and read in both workloads.
    pub reopen_every: u64,
    /// One image in this many is written to after its recovery.
    pub continue_every: u64,
    /// The most images of a run, `u64::MAX` for all.
    pub images_max: u64,
}

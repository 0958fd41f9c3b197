//! What adversaries observe and learn, in the words of the table in docs/threat-model.md.
//!
//! ```
//! use traceless_advise::leakage::VOLUME_DETWO;
//!
//! assert_eq!(VOLUME_DETWO.observes, "copies of the image, or every write to it");
//! assert!(VOLUME_DETWO.learns.starts_with("how many writes there were"));
//! ```

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Leakage {
    /// The row's first column.
    pub row: &'static str,
    /// What the adversary observes.
    pub observes: &'static str,
    /// What the adversary learns.
    pub learns: &'static str,
}

/// A volume of the scheme `detwo`.
pub const VOLUME_DETWO: Leakage = Leakage {
    row: "volume: detwo",
    observes: "copies of the image, or every write to it",
    learns: "how many writes there were, how they were grouped, syncs, openings; sizes; the scheme",
};

/// A volume of the scheme `sq`.
pub const VOLUME_SQ: Leakage = Leakage {
    row: "volume: sq",
    observes: VOLUME_DETWO.observes,
    learns: "how many writes there were, how they were grouped, syncs, openings; sizes; the \
             scheme; the times of flushes follow from it",
};

/// A volume of the scheme `ring`.
pub const VOLUME_RING: Leakage = Leakage {
    row: "volume: ring",
    observes: "every read and write of the image",
    learns: "how many accesses there were, how they were grouped, syncs, openings; sizes; the \
             scheme",
};

/// A paged program with a scheme that hides writes.
pub const PAGER_WRITES: Leakage = Leakage {
    row: "pager: detwo, eager, parallel, eager-parallel",
    observes: "every write to the store of pages, and the clock",
    learns: "how many pages left, and when; sizes; the scheme",
};

/// A paged program with a scheme that hides reads, too.
pub const PAGER_TREES: Leakage = Leakage {
    row: "pager: path, path-fused, ring",
    observes: "every read and write of that store, and the clock",
    learns: "how many pages came and left, and when; how many paths that took (path); sizes; the \
             scheme",
};

/// The pager within a runtime that handles its own page faults.
pub const PAGER_FOR_RUNTIMES: Leakage = Leakage {
    row: "traceless_pager.h, any scheme",
    observes: "every write of the store, of trees every read, too; and when the caller's functions \
               are called",
    learns: "as of the same scheme of the pager; how many bytes of its memory a pager uses",
};

/// A paged program, from the kernel that runs it.
pub const PAGER_KERNEL: Leakage = Leakage {
    row: "pager, any",
    observes: "page faults, as the kernel that delivers them",
    learns: "every page that is touched while it is away. Nothing is hidden",
};

/// Arrays and maps of the library `traceless`.
pub const ARRAYS: Leakage = Leakage {
    row: "arrays in trees, without a fixed rate",
    observes: "every read and write of the trees",
    learns: "how many requests there were, and how many steps each took, which depends on the PLB, \
             stashes and evictions",
};

/// The Oblivious client of the library `traceless`.
pub const OBLIVIOUS_CLIENT: Leakage = Leakage {
    row: "client for watched memory (traceless::oblivious)",
    observes: "every address that the program touches, and the clock",
    learns: "how many accesses there were; sizes",
};

/// A gateway at a constant rate.
pub const GATEWAY_AT_A_RATE: Leakage = Leakage {
    row: "gateway of the cloud store, at a constant rate",
    observes: "every message between gateway and host, and the clock; the host; all memory that \
               its enclave touches",
    learns: "the rate N, starts and stops, late ticks and lost messages, openings, sizes of the \
             tree. An enclave is simulated, and hides nothing from its machine, unless that is a \
             confidential virtual machine",
};

/// A gateway that sends queries as requests come.
pub const GATEWAY_ON_DEMAND: Leakage = Leakage {
    row: "gateway of the cloud store, without a constant rate",
    observes: GATEWAY_AT_A_RATE.observes,
    learns: "how many blocks were requested that were not at hand, and when; so the size classes \
             of values and objects",
};

/// The limit of every gateway; it stands in the row of [`GATEWAY_AT_A_RATE`].
pub const ENCLAVES: &str = "An enclave is simulated, and hides nothing from its machine, unless \
                            that is a confidential virtual machine";

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../docs/threat-model.md");

    /// The rows of the document's first table, without marks, and with what `the same` stands for.
    fn rows() -> Vec<[String; 3]> {
        let mut rows: Vec<[String; 3]> = Vec::new();
        let table = DOCUMENT.lines().skip_while(|line| !line.starts_with("| product |"));
        for line in table.skip(2).take_while(|line| line.starts_with('|')) {
            let plain = line.replace(['`', '*'], "");
            let mut cells = plain.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
            let mut row = [(); 3].map(|()| cells.next().unwrap());
            for (column, cell) in row.iter_mut().enumerate() {
                if let Some(more) = cell.strip_prefix("the same") {
                    *cell = format!("{}{more}", rows.last().unwrap()[column]);
                }
            }
            rows.push(row);
        }
        rows
    }

    #[test]
    fn each_leakage_stands_in_the_threat_model() {
        let rows = rows();
        assert!(rows.len() > 15, "{}", rows.len());
        for leakage in [
            VOLUME_DETWO,
            VOLUME_SQ,
            VOLUME_RING,
            PAGER_WRITES,
            PAGER_TREES,
            PAGER_FOR_RUNTIMES,
            PAGER_KERNEL,
            ARRAYS,
            OBLIVIOUS_CLIENT,
            GATEWAY_AT_A_RATE,
            GATEWAY_ON_DEMAND,
        ] {
            let wanted = [leakage.row, leakage.observes, leakage.learns];
            assert!(rows.iter().any(|row| *row == wanted), "{leakage:?}");
        }
        assert!(GATEWAY_AT_A_RATE.learns.ends_with(ENCLAVES));
    }
}

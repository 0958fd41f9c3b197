//! The oblivious client: Circuit ORAM, with its map in further trees.

use super::measure::{Access, CountingStore, MovedBytes, TreeSubject, WarmUp};
use super::{Details, TreeMeasurement, measure, refuse};
use crate::args::{Seal, TreeArgs};
use traceless::oblivious::{Traffic, create, create_sealed, sealed_len};
use traceless::oram::Oram;
use traceless::rng::System;
use traceless_cli::failure::Failure;

/// Accesses before the measurement: they touch most of the memory.
const WARM_UP: u64 = 600_000;

pub fn measure(args: &TreeArgs) -> Result<TreeMeasurement, Failure> {
    let options = [
        ("--z", args.z.is_some()),
        ("--levels", args.levels.is_some()),
        ("--cached", args.cached.is_some()),
        ("--maps", args.maps.is_some()),
    ];
    refuse("the oblivious client, which chooses by itself", &options)?;
    let is_sealed = match args.seal() {
        Seal::None => false,
        Seal::Aead => true,
        _ => return Err(Failure::usage("the oblivious client takes --seal none or aead")),
    };
    let traffic = if is_sealed { Traffic::on_store } else { Traffic::in_memory };
    let traffic = traffic(args.blocks, args.block_len).map_err(Failure::usage)?;
    let make = || {
        let moved = MovedBytes::default();
        let oram = if is_sealed {
            let len = sealed_len(args.blocks, args.block_len).map_err(Failure::usage)?;
            let store = CountingStore::new(len, &moved);
            create_sealed(args.blocks, args.block_len, store, Box::new(System))
        } else {
            create(args.blocks, args.block_len, Box::new(System))
        };
        let oram = oram.map_err(Failure::usage)?;
        let moved = is_sealed.then_some(moved);
        Ok(Box::new(ObliviousSubject { oram, traffic, accesses: 0, moved }) as Box<dyn TreeSubject>)
    };
    let numbers = measure::measure(args, WarmUp::Blocks(WARM_UP), make)?;
    let cipher = is_sealed.then_some("AES-256-GCM, a tag for three levels");
    let details = Details {
        levels: traffic.levels,
        z: traffic.levels.map(|_| 2),
        maps_in_trees: traffic.maps,
        ..Details::new(cipher)
    };
    Ok(TreeMeasurement { details, numbers })
}

/// The array, and the traffic of each access.
struct ObliviousSubject {
    oram: Box<dyn Oram>,
    traffic: Traffic,
    accesses: u64,
    /// Bytes moved to and from a store; without a store, all touched bytes count.
    moved: Option<MovedBytes>,
}

impl TreeSubject for ObliviousSubject {
    fn access(
        &mut self,
        access: Access,
        visit: &mut dyn FnMut(&mut [u8]),
    ) -> traceless::Result<u64> {
        self.accesses += 1;
        self.oram.update(access.addr, visit)?;
        Ok(self.traffic.paths)
    }

    fn bytes_moved(&self) -> u64 {
        let touched = self.accesses * self.traffic.bytes;
        self.moved.as_ref().map_or(touched, MovedBytes::bytes)
    }
}

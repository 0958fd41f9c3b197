//! Arrays of blocks of 64 bytes: uniformly random blocks, half of the accesses write.

use crate::Subject;
use aligned_cmov::A64Bytes;
use aligned_cmov::typenum::{U2, U4, U32, U64, U128, U256, U1024, U2048};
use mc_oblivious_ram::{
    CircuitORAM4096Z2Creator, CircuitOramDeterministicEvictor,
    CircuitOramDeterministicEvictorCreator, PathORAM, PathORAM4096Z4Creator,
    PathOramDeterministicEvictor, PathOramDeterministicEvictorCreator, U32PositionMapCreator,
};
use mc_oblivious_traits::{HeapORAMStorageCreator as Heap, ORAM, ORAMCreator, ORAMStorageCreator};
use oram::Oram as _;
use rand::SeedableRng as _;
use rostl_datastructures::array::DynamicArray;
use rostl_primitives::traits::{_Cmovbase, Cmov};
use rostl_primitives::{cmov_body, cxchg_body, impl_cmov_for_pod};
use std::sync::Arc;
use traceless::oblivious;
use traceless::rng::System;
use traceless::store::MemStore;
use traceless::oram::Oram;
use traceless::{Addr, Array};

const BLOCK_LEN: usize = 64;

const DOUBLY: &str = "client's memory watched, not encrypted";

type McRng = rand10::rngs::StdRng;

pub fn subjects(blocks: u64, slow: bool) -> Vec<Subject> {
    println!("arrays of {blocks} blocks");
    let mut all = vec![
        Subject::made(
            "traceless, Oblivious",
            DOUBLY,
            || oblivious::create(blocks, BLOCK_LEN, Box::new(System)).expect("it fits"),
            move |oram, number| ours(&mut **oram, number),
        ),
        Subject::made("rostl", DOUBLY, || DynamicArray::<Block>::new(blocks as usize), {
            move |array: &mut DynamicArray<Block>, number| {
                let (index, writes) = split(number, blocks);
                let mut block = Block([number; 8]);
                if writes {
                    array.write(index as usize, block);
                } else {
                    array.read(index as usize, &mut block);
                    std::hint::black_box(block);
                }
            }
        }),
        Subject::made(
            "mc-oblivious-ram, Circuit, Z = 2",
            DOUBLY,
            || Circuit64::create(blocks, 16, &mut mc_rng),
            move |oram, number| mc(oram, blocks, number),
        ),
        Subject::made(
            "mc-oblivious-ram, Path, Z = 4",
            DOUBLY,
            || Path64::create(blocks, 16, &mut mc_rng),
            move |oram, number| mc(oram, blocks, number),
        ),
    ];
    if slow || blocks <= 1 << 16 {
        all.push(facebook(blocks));
    } else {
        println!("  oram is skipped: making it takes a minute; --slow has it");
    }
    all.push(Subject::made(
        "traceless, Oblivious, on a store",
        "client's memory watched; encrypted, fresh",
        || {
            let len = oblivious::sealed_len(blocks, BLOCK_LEN).expect("it fits");
            let store = Arc::new(MemStore::new(len));
            oblivious::create_sealed(blocks, BLOCK_LEN, store, Box::new(System)).expect("it fits")
        },
        move |oram, number| ours(&mut **oram, number),
    ));
    all.push(Subject::made(
        "traceless, Array",
        "client's memory trusted; encrypted, fresh",
        || {
            let array = Array::builder().blocks(blocks).block_len(BLOCK_LEN);
            array.build().expect("it fits").into_oram()
        },
        move |oram, number| ours(&mut **oram, number),
    ));
    all
}

fn ours(oram: &mut dyn Oram, number: u64) {
    let (index, writes) = split(number, oram.blocks());
    let mut block = [number as u8; BLOCK_LEN];
    if writes {
        oram.write(Addr(index), &block).expect("an access works");
    } else {
        oram.read(Addr(index), &mut block).expect("an access works");
        std::hint::black_box(block);
    }
}

fn facebook(blocks: u64) -> Subject {
    let mut rng = rand::rngs::StdRng::from_entropy();
    let mut drawn = rand::rngs::StdRng::from_entropy();
    Subject::made(
        "oram",
        DOUBLY,
        move || {
            let made = oram::DefaultOram::<oram::BlockValue<BLOCK_LEN>>::new(blocks, &mut drawn);
            made.expect("it fits")
        },
        move |oram, number| {
            let (index, writes) = split(number, blocks);
            if writes {
                let block = oram::BlockValue::new([number as u8; BLOCK_LEN]);
                oram.write(index, block, &mut rng).expect("an access works");
            } else {
                std::hint::black_box(oram.read(index, &mut rng).expect("an access works"));
            }
        },
    )
}

/// Which block, and whether it is written.
fn split(number: u64, blocks: u64) -> (u64, bool) {
    ((number >> 1) % blocks, number & 1 == 1)
}

#[derive(Clone, Copy, Default, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Block([u64; 8]);

impl_cmov_for_pod!(Block);

pub fn mc_rng() -> McRng {
    rand10::make_rng()
}

fn mc(oram: &mut impl ORAM<U64>, blocks: u64, number: u64) {
    let (index, writes) = split(number, blocks);
    if writes {
        let mut block = A64Bytes::<U64>::default();
        block.fill(number as u8);
        std::hint::black_box(oram.write(index, &block));
    } else {
        std::hint::black_box(oram.read(index));
    }
}

/// The library's own creators are for blocks of 1024 and 2048 bytes; these differ from them in
/// nothing else.
struct Circuit64;

impl ORAMCreator<U64, McRng> for Circuit64 {
    type Output = PathORAM<
        U64,
        U2,
        <Heap as ORAMStorageCreator<U128, U32>>::Output,
        McRng,
        CircuitOramDeterministicEvictor,
    >;

    fn create<M: 'static + FnMut() -> McRng>(
        size: u64,
        stash_size: usize,
        rng_maker: &mut M,
    ) -> Self::Output {
        type Map = U32PositionMapCreator<U2048, McRng, CircuitORAM4096Z2Creator<McRng, Heap>>;
        let evictor = CircuitOramDeterministicEvictorCreator::new(2);
        PathORAM::new::<Map, Heap, M, CircuitOramDeterministicEvictorCreator>(
            size, stash_size, rng_maker, evictor,
        )
    }
}

struct Path64;

impl ORAMCreator<U64, McRng> for Path64 {
    type Output = PathORAM<
        U64,
        U4,
        <Heap as ORAMStorageCreator<U256, U64>>::Output,
        McRng,
        PathOramDeterministicEvictor,
    >;

    fn create<M: 'static + FnMut() -> McRng>(
        size: u64,
        stash_size: usize,
        rng_maker: &mut M,
    ) -> Self::Output {
        type Map = U32PositionMapCreator<U1024, McRng, PathORAM4096Z4Creator<McRng, Heap>>;
        let evictor = PathOramDeterministicEvictorCreator::new(0);
        PathORAM::new::<Map, Heap, M, PathOramDeterministicEvictorCreator>(
            size, stash_size, rng_maker, evictor,
        )
    }
}

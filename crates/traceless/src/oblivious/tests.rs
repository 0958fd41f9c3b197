use super::*;
use crate::rng::Seeded;
use std::boxed::Box;

fn random(oram: &mut dyn Oram, operations: u64, seed: u64) {
    let (blocks, len) = (oram.blocks(), oram.block_len());
    let mut model = vec![0_u8; blocks as usize * len];
    let mut rng = Seeded::new(seed);
    let mut block = vec![0; len];
    for i in 0..operations {
        // Half of the operations go to a few blocks, and some in order.
        let addr = match rng.below(4) {
            0 => i % blocks,
            1 => rng.below(blocks.div_ceil(16)),
            _ => rng.below(blocks),
        };
        let own = &mut model[addr as usize * len..][..len];
        match rng.below(4) {
            0 => {
                oram.update(Addr(addr), &mut |block| block[0] ^= 0x5a).unwrap();
                own[0] ^= 0x5a;
            }
            1 => {
                oram.read(Addr(addr), &mut block).unwrap();
                assert_eq!(block, own, "block {addr} after {i} operations");
            }
            _ => {
                rng.fill(own);
                oram.write(Addr(addr), own).unwrap();
            }
        }
    }
    for (addr, own) in model.chunks(len).enumerate() {
        oram.read(Addr(addr as u64), &mut block).unwrap();
        assert_eq!(block, own, "block {addr} at the end");
    }
}

fn tree(blocks: u64, len: usize, seed: u64) -> Oblivious {
    Oblivious::new(blocks, len, Box::new(Seeded::new(seed))).unwrap()
}

#[test]
fn is_an_array_at_every_small_size() {
    for blocks in (1..20).chain([31, 32, 33, 100]) {
        random(&mut tree(blocks, 8, blocks), 3000, 1);
        random(&mut Scan::new(blocks, 8).unwrap(), 300, 1);
    }
}

#[test]
fn is_an_array_at_every_length() {
    for len in [1, 7, 8, 9, 16, 63, 64, 65, 200, 256, 1000, 4096] {
        random(&mut tree(50, len, 2), 1500, 3);
        for blocks in [3, 700] {
            random(&mut *create(blocks, len, Box::new(Seeded::new(4))).unwrap(), 800, 5);
        }
    }
    random(&mut tree(3, 1 << 20, 1), 30, 1);
}

#[test]
fn is_an_array_with_maps() {
    for blocks in [4096, 4097, 70_001] {
        random(&mut *create(blocks, 64, Box::new(Seeded::new(7))).unwrap(), 200_000, 8);
    }
}

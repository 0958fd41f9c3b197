//! What a page that comes back from a swap costs its server: a random page of a volume with its
//! image in memory, without the kernel's part.

use super::server::{create, user_key};
use super::{Effort, Places, Row, failed, row, seconds};
use traceless::rng::{Rng, SeededRng};
use traceless_cli::failure::Failure;
use traceless_volume::device::Device;
use traceless_volume::volume::{OpenOptions, Volume};

pub const NAMES: [&str; 2] = ["swap-page-in-detwo", "swap-page-in-ring"];

const PAGE: usize = 4096;
/// Pages of a round.
const PAGES: usize = 20_000;

pub fn measure(places: &Places, effort: Effort) -> Result<Vec<Row>, Failure> {
    let of_scheme = |(name, scheme)| Ok(row(name, "us", page_ins(places, effort, scheme)?));
    NAMES.into_iter().zip(["detwo", "ring"]).map(of_scheme).collect()
}

/// Microseconds of a page-in, for each round.
fn page_ins(places: &Places, effort: Effort, scheme: &str) -> Result<Vec<f64>, Failure> {
    const LARGE: u64 = 1 << 20;
    let bytes = effort.volume_bytes;
    let image = create(&places.ram, scheme, bytes, &["--map", "memory"])?;
    let volume = Volume::open(&image, &user_key(), &OpenOptions::default(), &mut |_, _| {})
        .map_err(failed)?;
    let (mut rng, mut data) = (SeededRng::new(1), vec![0; LARGE as usize]);
    for at in (0..bytes).step_by(LARGE as usize) {
        rng.fill(&mut data);
        volume.write(at, &data).map_err(failed)?;
    }
    let mut page = [0; PAGE];
    let times = (0..effort.rounds).map(|_| {
        let taken = seconds(|| {
            for _ in 0..PAGES {
                let at = rng.below(bytes / PAGE as u64) * PAGE as u64;
                volume.read(at, &mut page).map_err(failed)?;
            }
            Ok(())
        })?;
        Ok(taken * 1e6 / PAGES as f64)
    });
    let times = times.collect::<Result<Vec<_>, Failure>>()?;
    volume.close().map_err(failed)?;
    std::fs::remove_file(&image).map_err(failed)?;
    Ok(times)
}

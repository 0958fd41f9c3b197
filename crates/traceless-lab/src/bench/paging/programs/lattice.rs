//! A fluid on a lattice (Lattice Boltzmann, D3Q19, one relaxation time). Each cell holds the flow
//! in 19 directions. In each step a cell takes the flows towards it, and relaxes towards
//! equilibrium. The lattice is periodic in all directions.

use super::mixed;

/// Cells along each edge: two lattices of this size take a thousand pages.
const EDGE: usize = 24;
const CELLS: usize = EDGE * EDGE * EDGE;
const DIRECTIONS: usize = 19;
/// The share of the way to equilibrium in one step.
const RELAXATION: f64 = 0.6;

type Cell = [f64; DIRECTIONS];

/// Runs `steps` steps.
pub fn run(steps: u64) -> u64 {
    let directions = directions();
    let mut cells = begin(&directions);
    let mut next = cells.clone();
    for _ in 0..steps {
        step(&directions, &cells, &mut next);
        std::mem::swap(&mut cells, &mut next);
    }
    cells.iter().flatten().fold(0, |sum, flow| mixed(sum, flow.to_bits()))
}

/// A direction of flow, and its share of the flow of a fluid at rest.
#[derive(Clone, Copy)]
struct Direction {
    towards: [i8; 3],
    weight: f64,
}

/// The directions to all neighbours that share an edge or a side, and of rest.
fn directions() -> [Direction; DIRECTIONS] {
    let weights = [1.0 / 3.0, 1.0 / 18.0, 1.0 / 36.0];
    let all = (0..27_i8).map(|nth| [nth / 9 - 1, nth / 3 % 3 - 1, nth % 3 - 1]);
    let with_length = all.map(|towards| (towards, towards.iter().map(|part| part * part).sum()));
    let near = with_length.filter(|&(_, length): &([i8; 3], i8)| length < 3);
    let mut directions =
        near.map(|(towards, length)| Direction { towards, weight: weights[length as usize] });
    std::array::from_fn(|_| directions.next().expect("there are 19"))
}

/// A fluid that is denser in some places.
fn begin(directions: &[Direction; DIRECTIONS]) -> Vec<Cell> {
    let cell = |nth: usize| {
        let density = 1.0 + 0.01 * (nth % 7) as f64;
        directions.map(|direction| direction.weight * density)
    };
    (0..CELLS).map(cell).collect()
}

fn step(directions: &[Direction; DIRECTIONS], from: &[Cell], to: &mut [Cell]) {
    for (nth, cell) in to.iter_mut().enumerate() {
        let place = [nth / (EDGE * EDGE), nth / EDGE % EDGE, nth % EDGE];
        for (nth, direction) in directions.iter().enumerate() {
            cell[nth] = from[before(place, direction.towards)][nth];
        }
        relax(directions, cell);
    }
}

/// The cell that flows to `place` in a direction.
fn before(place: [usize; 3], towards: [i8; 3]) -> usize {
    let along = |axis: usize| match towards[axis] {
        1 => (place[axis] + EDGE - 1) % EDGE,
        -1 => (place[axis] + 1) % EDGE,
        _ => place[axis],
    };
    (along(0) * EDGE + along(1)) * EDGE + along(2)
}

fn relax(directions: &[Direction; DIRECTIONS], cell: &mut Cell) {
    let density: f64 = cell.iter().sum();
    let mut speed = [0.0; 3];
    for (flow, direction) in cell.iter().zip(directions) {
        for (speed, part) in speed.iter_mut().zip(direction.towards) {
            *speed += flow * f64::from(part) / density;
        }
    }
    let square: f64 = speed.iter().map(|part| part * part).sum();
    for (flow, direction) in cell.iter_mut().zip(directions) {
        let along: f64 =
            speed.iter().zip(direction.towards).map(|(speed, part)| speed * f64::from(part)).sum();
        let rest =
            direction.weight * density * (1.0 + 3.0 * along + 4.5 * along * along - 1.5 * square);
        *flow += RELAXATION * (rest - *flow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_shrink_and_mass_is_kept() {
        let directions = directions();
        let weights: f64 = directions.iter().map(|direction| direction.weight).sum();
        assert!((weights - 1.0).abs() < 1e-12);
        let mut cells = begin(&directions);
        let mass = |cells: &[Cell]| cells.iter().flatten().sum::<f64>();
        let spread = |cells: &[Cell]| {
            let densities = cells.iter().map(|cell| cell.iter().sum::<f64>());
            let (least, most) = densities
                .fold((f64::MAX, 0.0_f64), |(a, b), density| (a.min(density), b.max(density)));
            most - least
        };
        let (before, spread_before) = (mass(&cells), spread(&cells));
        for _ in 0..20 {
            let mut next = cells.clone();
            step(&directions, &cells, &mut next);
            cells = next;
        }
        assert!((mass(&cells) - before).abs() < 1e-6 * before);
        assert!(spread(&cells) < spread_before / 2.0);
    }
}

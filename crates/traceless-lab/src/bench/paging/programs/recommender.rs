//! A recommender: predicts users' ratings of products from other ratings, by factors of both
//! (collaborative filtering).

use super::mixed;
use traceless::rng::{Rng, SeededRng};

const USERS: u64 = 8000;
const PRODUCTS: u64 = 2000;
const FACTORS: usize = 16;
/// Passes over all ratings.
const PASSES: usize = 2;
const RATE: f32 = 0.05;
const KEEP: f32 = 0.02;

/// Learns from `ratings` ratings.
pub fn run(ratings: u64) -> u64 {
    let mut rng = SeededRng::new(4);
    let ratings: Vec<Rating> = (0..ratings).map(|_| Rating::drawn(&mut rng)).collect();
    let mut model = Model::new(&mut rng);
    let mut sum = 0;
    for _ in 0..PASSES {
        sum = mixed(sum, u64::from(model.learn(&ratings).to_bits()));
    }
    model.products.iter().flatten().fold(sum, |sum, factor| mixed(sum, factor.to_bits().into()))
}

struct Rating {
    user: u32,
    product: u32,
    stars: f32,
}

impl Rating {
    /// A few products have most ratings, and a user rates products of a matching kind best.
    fn drawn(rng: &mut SeededRng) -> Self {
        let user = rng.below(USERS);
        let known = below(rng);
        let product = rng.below(known);
        let is_liked = user % 5 == product % 5;
        let stars = if is_liked { 4.0 } else { 2.0 } + rng.below(2) as f32;
        Self { user: user as u32, product: product as u32, stars }
    }
}

/// An upper bound for the product's number, so that half of all ratings are of the first eighth.
fn below(rng: &mut SeededRng) -> u64 {
    if rng.below(2) == 0 { PRODUCTS / 8 } else { PRODUCTS }
}

struct Model {
    users: Vec<[f32; FACTORS]>,
    products: Vec<[f32; FACTORS]>,
}

impl Model {
    fn new(rng: &mut SeededRng) -> Self {
        let mut factors = |count: u64| {
            let mut one = || std::array::from_fn(|_| 0.2 + rng.below(1000) as f32 / 2500.0);
            (0..count).map(|_| one()).collect()
        };
        Self { users: factors(USERS), products: factors(PRODUCTS) }
    }

    /// Makes one pass. Returns the mean square of the errors, each before it was learned from.
    fn learn(&mut self, ratings: &[Rating]) -> f32 {
        let mut squares = 0.0;
        for rating in ratings {
            let user = &mut self.users[rating.user as usize];
            let product = &mut self.products[rating.product as usize];
            let guess: f32 = user.iter().zip(&*product).map(|(u, p)| u * p).sum();
            let error = rating.stars - guess;
            squares += error * error;
            for (u, p) in user.iter_mut().zip(product) {
                let (old_u, old_p) = (*u, *p);
                *u += RATE * (error * old_p - KEEP * old_u);
                *p += RATE * (error * old_u - KEEP * old_p);
            }
        }
        squares / ratings.len().max(1) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_reduces_the_error() {
        let mut rng = SeededRng::new(5);
        let ratings: Vec<Rating> = (0..60_000).map(|_| Rating::drawn(&mut rng)).collect();
        let mut model = Model::new(&mut rng);
        let first = model.learn(&ratings);
        let last = (0..10).map(|_| model.learn(&ratings)).last().unwrap();
        assert!(last < first / 2.0, "{first}, {last}");
    }
}

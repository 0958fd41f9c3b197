//! A balanced tree of Adelson-Velsky and Landis with random insertions and removals.

use super::mixed;
use std::cmp::Ordering;
use traceless::rng::{Rng, SeededRng};

/// Inserts `keys` random keys, and then removes as many random keys.
pub fn run(keys: u64) -> u64 {
    let mut rng = SeededRng::new(2);
    let mut tree = AvlTree::default();
    for _ in 0..keys {
        let key = rng.below(2 * keys + 1);
        tree.insert(key, key * 3);
    }
    let mut sum = tree.len;
    for _ in 0..keys {
        sum = mixed(sum, tree.remove(rng.below(2 * keys + 1)).unwrap_or(1));
    }
    mixed(sum, tree.len)
}

#[derive(Default)]
struct AvlTree {
    root: Link,
    len: u64,
}

type Link = Option<Box<Node>>;

struct Node {
    key: u64,
    value: u64,
    height: u8,
    below: [Link; 2],
}

impl AvlTree {
    fn insert(&mut self, key: u64, value: u64) {
        self.len += u64::from(insert(&mut self.root, key, value));
    }

    fn remove(&mut self, key: u64) -> Option<u64> {
        let value = remove(&mut self.root, key)?;
        self.len -= 1;
        Some(value)
    }
}

/// Inserts a key, and returns whether it is new.
fn insert(link: &mut Link, key: u64, value: u64) -> bool {
    let Some(node) = link else {
        *link = Some(Box::new(Node { key, value, height: 1, below: [None, None] }));
        return true;
    };
    let is_new = match key.cmp(&node.key) {
        Ordering::Less => insert(&mut node.below[0], key, value),
        Ordering::Greater => insert(&mut node.below[1], key, value),
        Ordering::Equal => {
            node.value = value;
            return false;
        }
    };
    balance(link);
    is_new
}

fn remove(link: &mut Link, key: u64) -> Option<u64> {
    let node = link.as_mut()?;
    let value = match key.cmp(&node.key) {
        Ordering::Less => remove(&mut node.below[0], key)?,
        Ordering::Greater => remove(&mut node.below[1], key)?,
        Ordering::Equal => {
            let value = node.value;
            *link = match [node.below[0].take(), node.below[1].take()] {
                [None, other] | [other, None] => other,
                [left, mut right] => {
                    let mut next = take_least(&mut right).expect("the right side is not empty");
                    next.below = [left, right];
                    Some(next)
                }
            };
            value
        }
    };
    balance(link);
    Some(value)
}

fn take_least(link: &mut Link) -> Link {
    let node = link.as_mut()?;
    if node.below[0].is_some() {
        let least = take_least(&mut node.below[0]);
        balance(link);
        return least;
    }
    let above = node.below[1].take();
    std::mem::replace(link, above)
}

fn height(link: &Link) -> u8 {
    link.as_ref().map_or(0, |node| node.height)
}

/// Sets the node's height, and returns the side that is higher by more than one, if any.
fn higher(node: &mut Node) -> Option<usize> {
    let [left, right] = [height(&node.below[0]), height(&node.below[1])];
    node.height = 1 + left.max(right);
    match left.abs_diff(right) {
        0 | 1 => None,
        _ => Some(usize::from(right > left)),
    }
}

fn balance(link: &mut Link) {
    let Some(node) = link else { return };
    let Some(side) = higher(node) else { return };
    let child = node.below[side].as_mut().expect("it is higher");
    if height(&child.below[1 - side]) > height(&child.below[side]) {
        rotate(&mut node.below[side], 1 - side);
    }
    rotate(link, side);
}

/// Rotates the child on this side up.
fn rotate(link: &mut Link, side: usize) {
    let mut node = link.take().expect("there is a node");
    let mut child = node.below[side].take().expect("there is a child on this side");
    node.below[side] = child.below[1 - side].take();
    higher(&mut node);
    child.below[1 - side] = Some(node);
    higher(&mut child);
    *link = Some(child);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Collects the keys in order, and asserts that the tree is balanced.
    fn keys(link: &Link, into: &mut Vec<u64>) {
        let Some(node) = link else { return };
        keys(&node.below[0], into);
        into.push(node.key);
        keys(&node.below[1], into);
        let heights = [0, 1].map(|side| height(&node.below[side]));
        assert!(heights[0].abs_diff(heights[1]) < 2);
        assert_eq!(node.height, 1 + heights[0].max(heights[1]));
    }

    #[test]
    fn the_tree_is_a_balanced_map() {
        let (mut tree, mut truth, mut rng) =
            (AvlTree::default(), BTreeMap::new(), SeededRng::new(3));
        for step in 0..4000 {
            let key = rng.below(500);
            if rng.below(2) == 0 {
                tree.insert(key, step);
                truth.insert(key, step);
            } else {
                assert_eq!(tree.remove(key), truth.remove(&key));
            }
            assert_eq!(tree.len, truth.len() as u64);
            if step % 50 == 0 {
                let mut found = vec![];
                keys(&tree.root, &mut found);
                assert!(found.iter().eq(truth.keys()));
            }
        }
    }
}

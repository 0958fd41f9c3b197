//! Private contact look-up: which numbers of a client's address book belong to users?
//!
//! The server knows its users, but must not learn a client's contacts. It runs where only the
//! program itself is trusted, for example in an enclave: its operator observes each address that
//! the program touches. So the table of users is an oblivious map, and the program copies answers
//! without branching on them: the operator learns nothing about a requested number, not even
//! whether it belongs to a user.
//!
//! `cargo run --release -p traceless --example contacts -- [USERS]`

use std::error::Error;
use traceless::Map;
use traceless::map::Operation;

/// Bytes of a phone number, as ASCII digits, and of a user's id.
const NUMBER_LEN: usize = 16;
const ID_LEN: usize = 16;

/// The answer for each number: whether it belongs to a user, and the user's id.
const ANSWER_LEN: usize = 1 + ID_LEN;

fn main() -> Result<(), Box<dyn Error>> {
    let users = std::env::args().nth(1).map_or(Ok(10_000), |users| users.parse())?;
    let mut server = Server::new(users)?;

    // A client's request, through a channel that ends within the enclave.
    let contacts = [number_of(7), number_of(users), number_of(users - 1), *b"+49 30 000000000"];
    let answers = server.answer(&contacts)?;

    for (number, answer) in contacts.iter().zip(answers.chunks_exact(ANSWER_LEN)) {
        let number = String::from_utf8_lossy(number);
        match answer[0] {
            1 => println!("{number} is user {}", String::from_utf8_lossy(&answer[1..])),
            _ => println!("{number} is not a user"),
        }
    }
    let found: Vec<u8> = answers.chunks_exact(ANSWER_LEN).map(|answer| answer[0]).collect();
    assert_eq!(found, [1, 0, 1, 0]);
    Ok(())
}

struct Server {
    users: Map,
}

impl Server {
    fn new(count: u64) -> traceless::Result<Self> {
        let map = Map::builder().capacity(count).key_len(NUMBER_LEN).value_len(ID_LEN);
        let mut users = map.build()?;
        for user in 0..count {
            users.insert(&number_of(user), format!("id-{user:013}").as_bytes())?;
        }
        Ok(Self { users })
    }

    /// The numbers are secret, how many there are is not.
    fn answer(&mut self, numbers: &[[u8; NUMBER_LEN]]) -> traceless::Result<Vec<u8>> {
        let mut answers = Vec::with_capacity(numbers.len() * ANSWER_LEN);
        for number in numbers {
            let answer = self.users.operate(Operation::GET, number, &[])?;
            answers.push(answer.found.unwrap_u8());
            answers.extend_from_slice(answer.value);
        }
        Ok(answers)
    }
}

fn number_of(user: u64) -> [u8; NUMBER_LEN] {
    let digits = format!("+49 176 {user:08}");
    digits.as_bytes().try_into().expect("a number has 16 digits")
}

use std::io::ErrorKind;

use super::*;
use crate::nbd::memory::Memory;

const LEN: usize = 1 << 20;

#[test]
fn info_answers_the_query_and_go_begins() {
    let end = converse(&Memory::new(LEN), Tls::Unavailable, |stream| {
        let mut client = Client::greet(stream);
        let wanted = [info::NAME, info::DESCRIPTION, info::BLOCK_SIZE, info::NAME, 99];
        let replies = client.option(opt::INFO, &info_data(b"", &wanted));
        let flags = flag::HAS_FLAGS
            | flag::SEND_FLUSH
            | flag::SEND_FUA
            | flag::SEND_WRITE_ZEROES
            | flag::CAN_MULTI_CONN;
        let export = [&[0, 0][..], &(LEN as u64).to_be_bytes(), &flags.to_be_bytes()].concat();
        let block_size = [0, 3, 0, 0, 2, 0, 0, 0, 16, 0, 2, 0, 0, 0].to_vec();
        let expected = [
            (rep::INFO, export),
            (rep::INFO, block_size),
            (rep::INFO, vec![0, 1]),
            (rep::INFO, b"\0\x02Traceless volume".to_vec()),
            (rep::ACK, vec![]),
        ];
        assert_eq!(replies, expected);
        assert_eq!(client.go(), flags);
        assert_eq!(client.read(0, 512), Ok(vec![0; 512]));
        client.send(&request(0, cmd::DISC, 0, 0));
        assert!(client.at_end());
    });
    end.unwrap();
}

#[test]
fn flags_follow_the_device_and_the_negotiation() {
    let mut device = Memory::new(LEN);
    device.read_only = true;
    let _ = converse(&device, Tls::Unavailable, |stream| {
        let mut client = Client::greet(stream);
        assert_eq!(client.option(opt::STRUCTURED_REPLY, &[]), [(rep::ACK, vec![])]);
        let flags = client.go();
        assert_ne!(flags & flag::READ_ONLY, 0);
        assert_ne!(flags & flag::SEND_DF, 0);
    });
}

#[test]
fn there_is_one_export_and_its_name_is_empty() {
    let end = converse(&Memory::new(LEN), Tls::Unavailable, |stream| {
        let mut client = Client::greet(stream);
        let listed = client.option(opt::LIST, &[]);
        assert_eq!(listed[0], (rep::SERVER, b"\0\0\0\0Traceless volume".to_vec()));
        assert_eq!(listed[1], (rep::ACK, vec![]));
        let replies = client.option(opt::GO, &info_data(b"other", &[]));
        assert_eq!(replies[0].0, rep::ERR_UNKNOWN);
        assert_eq!(client.option(opt::ABORT, &[]), [(rep::ACK, vec![])]);
        assert!(client.at_end());
    });
    end.unwrap();
}

#[test]
fn exports_are_chosen_by_their_names() {
    let (first, second) = (Memory::new(LEN), Memory::new(2 * LEN));
    first.write(0, b"first").unwrap();
    second.write(0, b"second").unwrap();
    let exports =
        [NamedDevice { name: "", device: &first }, NamedDevice { name: "second", device: &second }];
    let _ = converse_with(&exports, Tls::Unavailable, |stream| {
        let mut client = Client::greet(stream);
        let listed = client.option(opt::LIST, &[]);
        assert_eq!(listed[0].1, b"\0\0\0\0Traceless volume");
        assert_eq!(listed[1].1, b"\0\0\0\x06secondTraceless volume");
        assert_eq!(listed[2].0, rep::ACK);
        let replies = client.option(opt::GO, &info_data(b"second", &[info::NAME]));
        assert_eq!(replies[0].1[2..10], (2 * LEN as u64).to_be_bytes());
        assert_eq!(replies[2], (rep::INFO, b"\0\x01second".to_vec()));
        assert_eq!(client.read(0, 6), Ok(b"second".to_vec()));
    });
    let _ = converse_with(&exports, Tls::Unavailable, |stream| {
        let mut client = Client::greet(stream);
        client.send(&option_bytes(opt::EXPORT_NAME, b"second"));
        assert_eq!(client.take(8), (2 * LEN as u64).to_be_bytes());
    });
    let _ = converse_with(&exports, Tls::Unavailable, |stream| {
        let mut client = Client::greet(stream);
        client.go();
        assert_eq!(client.read(0, 5), Ok(b"first".to_vec()));
    });
}

#[test]
fn export_name_begins_with_or_without_zeroes() {
    for (client_flags, tail) in [(1u8, 124), (3, 0)] {
        let _ = converse(&Memory::new(LEN), Tls::Unavailable, |stream| {
            let mut client = Client(stream);
            client.take(18);
            client.send(&[0, 0, 0, client_flags]);
            client.send(&option_bytes(opt::EXPORT_NAME, b""));
            assert_eq!(client.take(8), (LEN as u64).to_be_bytes());
            client.take(2);
            assert_eq!(client.take(tail), vec![0; tail]);
            assert_eq!(client.read(0, 1), Ok(vec![0]));
        });
    }
    let end = converse(&Memory::new(LEN), Tls::Unavailable, |stream| {
        let mut client = Client::greet(stream);
        client.send(&option_bytes(opt::EXPORT_NAME, b"other"));
        assert!(client.at_end());
    });
    end.unwrap();
}

#[test]
fn nonsense_is_refused_and_the_talk_goes_on() {
    let long_name = info_data(&[b'x'; 5000], &[]);
    let cases: [(u32, &[u8], u32); 12] = [
        (10, &[], rep::ERR_UNSUP), // META_CONTEXT
        (11, &[], rep::ERR_UNSUP), // EXTENDED_HEADERS
        (0xdead_beef, b"what?", rep::ERR_UNSUP),
        (opt::LIST, b"x", rep::ERR_INVALID),
        (opt::STRUCTURED_REPLY, b"x", rep::ERR_INVALID),
        (opt::STARTTLS, b"x", rep::ERR_INVALID),
        (opt::STARTTLS, b"", rep::ERR_POLICY),
        (opt::GO, b"", rep::ERR_INVALID),
        (opt::GO, &[0xff; 8], rep::ERR_INVALID),
        (opt::INFO, &[0, 0, 0, 0, 0, 1], rep::ERR_INVALID),
        (opt::INFO, &[0, 0, 0, 0, 0, 0, 0], rep::ERR_INVALID),
        (opt::INFO, &long_name, rep::ERR_INVALID),
    ];
    let _ = converse(&Memory::new(LEN), Tls::Unavailable, |stream| {
        let mut client = Client::greet(stream);
        for (option, data, expected) in cases {
            assert_eq!(client.option(option, data)[0].0, expected, "option {option}");
        }
        client.go();
    });
}

#[test]
fn a_program_that_cannot_continue_ends() {
    let end = |first: &[u8], later: &[u8]| {
        converse(&Memory::new(LEN), Tls::Unavailable, |stream| {
            let mut client = Client(stream);
            client.take(18);
            client.send(first);
            client.send(later);
            while !client.at_end() {}
        })
    };
    let invalid = |result: io::Result<()>| result.unwrap_err().kind() == ErrorKind::InvalidData;
    assert!(invalid(end(&[0, 0, 0, 7], &[])), "a flag that was not offered");
    assert!(invalid(end(&[0, 0, 0, 3], &[0; 16])), "no option");
    let endless = option_bytes(opt::LIST, &[]).repeat(64);
    assert!(invalid(end(&[0, 0, 0, 3], &endless)), "it never decides");
    let mut too_long = option_bytes(opt::LIST, &[]);
    too_long[12..].copy_from_slice(&(64u32 * 1024 + 1).to_be_bytes());
    assert!(end(&[0, 0, 0, 3], &too_long).is_ok());
}

#[test]
fn the_longest_option_is_read() {
    let _ = converse(&Memory::new(LEN), Tls::Unavailable, |stream| {
        let mut client = Client::greet(stream);
        assert_eq!(client.option(77, &vec![1; 64 << 10])[0].0, rep::ERR_UNSUP);
        client.go();
    });
}

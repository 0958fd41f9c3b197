use std::io::ErrorKind;

use rustix::io::Errno;

use super::*;
use crate::nbd::fuzz_session;
use crate::nbd::memory::Memory;
use crate::nbd::protocol::{PAYLOAD_LEN_MAX, cmd_flag, errno};

const LEN: u64 = 1 << 20;

/// Talks to a server after the negotiation, once with simple and once with structured replies.
fn both_ways(device: &dyn Device, talk: impl Fn(&mut Client<UnixStream>)) {
    for structured in [false, true] {
        let end = converse(device, Tls::Unavailable, |stream| {
            let mut client = Client::ready(stream, structured);
            talk(&mut client);
            client.send(&request(0, cmd::DISC, 0, 0));
            assert!(client.at_end());
        });
        end.unwrap();
    }
}

#[test]
fn what_is_written_is_read_at_any_alignment() {
    both_ways(&Memory::new(LEN as usize), |client| {
        for (at, len) in
            [(0, 1), (511, 2), (4095, 4098), (777, 300_000), (LEN - 1, 1), (0, 1 << 20)]
        {
            let data: Vec<u8> = (0..len).map(|index| (index * 7 + len) as u8).collect();
            assert_eq!(client.write(at, &data), Ok(vec![]));
            assert!(client.read(at, len as u32) == Ok(data), "{at} {len}");
        }
    });
}

#[test]
fn writing_zeroes_is_writing() {
    both_ways(&Memory::new(LEN as usize), |client| {
        client.write(0, &vec![9; LEN as usize]).unwrap();
        client.plain(0, cmd::WRITE_ZEROES, 100, 70_000).unwrap();
        client.plain(cmd_flag::NO_HOLE, cmd::WRITE_ZEROES, 80_000, 1).unwrap();
        let read = client.read(0, LEN as u32).unwrap();
        let zero = |index: usize| (100..70_100).contains(&index) || index == 80_000;
        assert!(
            read.iter().enumerate().all(|(index, &byte)| byte == if zero(index) { 0 } else { 9 })
        );
    });
}

#[test]
fn a_long_zeroing_comes_in_pieces() {
    let probe = Probe::default();
    let _ = converse(&probe, Tls::Unavailable, |stream| {
        let mut client = Client::ready(stream, false);
        client.plain(cmd_flag::FUA, cmd::WRITE_ZEROES, 4096, 3 << 20).unwrap();
    });
    let write = |at, len| Call::Write { at, first: 0, len };
    let mib = 1 << 20;
    assert_eq!(
        probe.log(),
        [
            write(4096, mib - 4096),
            write(1 << 20, mib),
            write(2 << 20, mib),
            write(3 << 20, 4096),
            Call::Flush
        ]
    );
}

#[test]
fn trims_and_zeroings_are_discards_where_the_device_keeps_them() {
    let probe = Probe { keeps_discards: true, ..Probe::default() };
    let long = u32::MAX - 4095;
    let _ = converse(&probe, Tls::Unavailable, |stream| {
        let mut client = Client::greet(stream);
        let offered = flag::SEND_TRIM | flag::SEND_FAST_ZERO;
        assert_eq!(client.go() & offered, offered);
        client.plain(0, cmd::TRIM, 4096, long).unwrap();
        client.plain(cmd_flag::FUA, cmd::TRIM, 100, 0).unwrap();
        client.plain(0, cmd::WRITE_ZEROES, 5, 9).unwrap();
        let fast = cmd_flag::FAST_ZERO | cmd_flag::NO_HOLE;
        client.plain(fast, cmd::WRITE_ZEROES, 0, 512).unwrap();
        assert_eq!(client.plain(0, cmd::TRIM, (8 << 30) - 1, 2), Err(errno::ENOSPC));
        assert_eq!(client.plain(cmd_flag::NO_HOLE, cmd::TRIM, 0, 2), Err(errno::EINVAL));
    });
    let discard = |at, len| Call::Discard { at, len };
    assert_eq!(
        probe.log(),
        [discard(4096, long.into()), discard(100, 0), Call::Flush, discard(5, 9), discard(0, 512)]
    );
}

#[test]
fn fua_flushes_after_the_write_and_flush_flushes() {
    let probe = Probe::default();
    let _ = converse(&probe, Tls::Unavailable, |stream| {
        let mut client = Client::ready(stream, true);
        client.write(0, &[1]).unwrap();
        client.send(&[request(cmd_flag::FUA, cmd::WRITE, 1, 1), vec![2]].concat());
        client.reply(0).unwrap();
        client.plain(0, cmd::FLUSH, 0, 0).unwrap();
        client.plain(cmd_flag::FUA, cmd::FLUSH, 0, 0).unwrap();
    });
    let write = |at, first| Call::Write { at, first, len: 1 };
    assert_eq!(probe.log(), [write(0, 1), write(1, 2), Call::Flush, Call::Flush, Call::Flush]);
}

#[test]
fn requests_out_of_bounds_are_refused() {
    both_ways(&Memory::new(LEN as usize), |client| {
        for (at, len) in [(LEN, 1), (LEN - 1, 2), (u64::MAX, 1), (u64::MAX - 1, 512)] {
            assert_eq!(client.read(at, len), Err(errno::EINVAL));
            assert_eq!(client.write(at, &vec![1; len as usize]), Err(errno::ENOSPC));
            assert_eq!(client.plain(0, cmd::WRITE_ZEROES, at, len), Err(errno::ENOSPC));
        }
        assert_eq!(client.plain(0, cmd::WRITE_ZEROES, 0, u32::MAX), Err(errno::ENOSPC));
        assert_eq!(client.read(0, PAYLOAD_LEN_MAX + 1), Err(errno::EINVAL));
        let too_long = vec![1; PAYLOAD_LEN_MAX as usize + 1];
        assert_eq!(client.write(0, &too_long), Err(errno::EINVAL));
        assert_eq!(client.read(0, 1), Ok(vec![0]), "nothing was written, and the talk goes on");
    });
}

#[test]
fn the_longest_payloads_are_served() {
    let device = Memory::new(PAYLOAD_LEN_MAX as usize);
    both_ways(&device, |client| {
        let data: Vec<u8> = (0..PAYLOAD_LEN_MAX).map(|index| (index % 251) as u8).collect();
        client.write(0, &data).unwrap();
        assert!(client.read(0, PAYLOAD_LEN_MAX) == Ok(data));
    });
}

#[test]
fn unknown_commands_and_flags_are_refused() {
    both_ways(&Memory::new(LEN as usize), |client| {
        for command in [4, 5, 7, 8, 99, u16::MAX] {
            assert_eq!(client.plain(0, command, 0, 512), Err(errno::EINVAL), "command {command}");
        }
        assert_eq!(client.plain(1 << 5, cmd::READ, 0, 1), Err(errno::EINVAL));
        client.send(&[request(1 << 3, cmd::WRITE, 0, 4), vec![1; 4]].concat());
        assert_eq!(client.reply(0), Err(errno::EINVAL));
        let fast = cmd_flag::FAST_ZERO;
        assert_eq!(client.plain(fast, cmd::WRITE_ZEROES, 0, 512), Err(errno::ENOTSUP));
        assert_eq!(client.read(0, 4), Ok(vec![0; 4]));
    });
}

#[test]
fn do_not_fragment_needs_structured_replies() {
    let device = Memory::new(LEN as usize);
    let _ = converse(&device, Tls::Unavailable, |stream| {
        let mut client = Client::ready(stream, true);
        client.send(&request(cmd_flag::DF, cmd::READ, 0, 8));
        assert_eq!(client.reply(8), Ok(vec![0; 8]));
    });
    let _ = converse(&device, Tls::Unavailable, |stream| {
        let mut client = Client::ready(stream, false);
        assert_eq!(client.plain(cmd_flag::DF, cmd::READ, 0, 8), Err(errno::EINVAL));
    });
}

#[test]
fn requests_of_no_length_do_nothing() {
    both_ways(&Memory::new(LEN as usize), |client| {
        for at in [0, 5, LEN] {
            assert_eq!(client.read(at, 0), Ok(vec![]));
            assert_eq!(client.write(at, &[]), Ok(vec![]));
            assert_eq!(client.plain(0, cmd::WRITE_ZEROES, at, 0), Ok(vec![]));
        }
        assert_eq!(client.read(LEN + 1, 0), Err(errno::EINVAL));
    });
}

#[test]
fn a_read_only_device_is_not_written() {
    let mut device = Memory::new(LEN as usize);
    device.read_only = true;
    both_ways(&device, |client| {
        assert_eq!(client.write(0, &[1; 600]), Err(errno::EPERM));
        assert_eq!(client.plain(0, cmd::WRITE_ZEROES, 0, 1), Err(errno::EPERM));
        assert_eq!(client.read(0, 600), Ok(vec![0; 600]));
        assert_eq!(client.plain(0, cmd::FLUSH, 0, 0), Ok(vec![]));
    });
}

#[test]
fn errors_of_the_device_reach_the_client() {
    for (host, wire) in [(Errno::IO, errno::EIO), (Errno::ROFS, errno::EPERM)] {
        let mut device = Memory::new(LEN as usize);
        device.failure = Some(host);
        both_ways(&device, |client| {
            assert_eq!(client.read(0, 4096), Err(wire));
            assert_eq!(client.write(0, &[1]), Err(wire));
            assert_eq!(client.plain(0, cmd::WRITE_ZEROES, 0, 9), Err(wire));
            assert_eq!(client.plain(0, cmd::FLUSH, 0, 0), Err(wire));
        });
    }
}

#[test]
fn many_requests_in_one_piece_are_answered_in_order() {
    both_ways(&Memory::new(LEN as usize), |client| {
        let mut sent = Vec::new();
        for index in 0..100u8 {
            let at = u64::from(index) * 3000;
            sent.extend(request(0, cmd::WRITE, at, 3000));
            sent.extend([index; 3000]);
            sent.extend(request(0, cmd::READ, at, 3000));
        }
        // The replies do not fit into the socket, so the client reads them while it sends requests.
        let mut sender = client.0.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || sender.write_all(&sent).unwrap());
            for index in 0..100u8 {
                assert_eq!(client.reply(0), Ok(vec![]));
                assert_eq!(client.reply(3000), Ok(vec![index; 3000]));
            }
        });
    });
}

/// Of requests that arrive together, the ones that fail get errors, and the rest their answers.
#[test]
fn requests_in_one_piece_fail_alone() {
    both_ways(&Memory::new(LEN as usize), |client| {
        let write = |at, byte| [request(0, cmd::WRITE, at, 4), vec![byte; 4]].concat();
        let sent = [
            write(0, 1),
            request(0, cmd::READ, 100, 4),
            write(LEN - 2, 2),
            write(4, 3),
            request(0, cmd::READ, LEN, 4),
            request(0, cmd::READ, 0, 8),
            write(8, 5),
            request(0, cmd::READ, 8, 4),
        ];
        client.send(&sent.concat());
        assert_eq!(client.reply(0), Ok(vec![]));
        assert_eq!(client.reply(4), Ok(vec![0; 4]));
        assert_eq!(client.reply(0), Err(errno::ENOSPC));
        assert_eq!(client.reply(0), Ok(vec![]));
        assert_eq!(client.reply(4), Err(errno::EINVAL));
        assert_eq!(client.reply(8), Ok(vec![1, 1, 1, 1, 3, 3, 3, 3]));
        assert_eq!(client.reply(0), Ok(vec![]));
        assert_eq!(client.reply(4), Ok(vec![5; 4]));
    });
}

#[test]
fn a_device_that_fails_refuses_all_requests_of_a_piece() {
    let mut device = Memory::new(LEN as usize);
    device.failure = Some(Errno::IO);
    both_ways(&device, |client| {
        let write = [request(0, cmd::WRITE, 0, 4), vec![1; 4]].concat();
        let read = request(0, cmd::READ, 100, 4);
        client.send(&[read.clone(), write.clone(), write, read].concat());
        for len in [4, 0, 0, 4] {
            assert_eq!(client.reply(len), Err(errno::EIO));
        }
    });
}

#[test]
fn writes_in_one_piece_are_flushed_once_if_one_of_them_demands_it() {
    let probe = Probe::default();
    let _ = converse(&probe, Tls::Unavailable, |stream| {
        let mut client = Client::ready(stream, true);
        let write = |flags, at| [request(flags, cmd::WRITE, at, 1), vec![at as u8]].concat();
        client.send(&[write(0, 1), write(cmd_flag::FUA, 2), write(0, 3)].concat());
        (0..3).for_each(|_| assert_eq!(client.reply(0), Ok(vec![])));
    });
    let write = |at| Call::Write { at, first: at as u8, len: 1 };
    assert_eq!(probe.log(), [write(1), write(2), write(3), Call::Flush]);
}

#[test]
fn a_stream_out_of_step_is_dropped_after_what_was_valid() {
    let end = converse(&Memory::new(LEN as usize), Tls::Unavailable, |stream| {
        let mut client = Client::ready(stream, false);
        client.send(&[request(0, cmd::FLUSH, 0, 0), vec![0; 28]].concat());
        assert_eq!(client.reply(0), Ok(vec![]));
        assert!(client.at_end());
    });
    assert_eq!(end.unwrap_err().kind(), ErrorKind::InvalidData);
}

/// A valid conversation, without the first byte of `fuzz_session`, which selects the set-up.
fn conversation() -> Vec<u8> {
    [
        vec![0, 0, 0, 3],
        option_bytes(opt::STRUCTURED_REPLY, &[]),
        option_bytes(opt::LIST, &[]),
        option_bytes(opt::GO, &info_data(b"", &[info::BLOCK_SIZE])),
        request(0, cmd::WRITE, 100, 50),
        vec![5; 50],
        request(cmd_flag::DF, cmd::READ, 90, 70),
        request(0, cmd::WRITE_ZEROES, 0, 16384),
        request(0, cmd::FLUSH, 0, 0),
        request(0, cmd::DISC, 0, 0),
    ]
    .concat()
}

#[test]
fn input_that_ends_early_or_is_damaged_does_no_harm() {
    let valid = conversation();
    let whole = fuzz_session(&[vec![0], valid.clone()].concat());
    for len in 0..valid.len() {
        let sent = fuzz_session(&[vec![0], valid[..len].to_vec()].concat());
        assert!(whole.starts_with(&sent), "no byte depends on what is still to come");
    }
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize
    };
    for _ in 0..5000 {
        let mut damaged = [vec![random() as u8], valid.clone()].concat();
        for _ in 0..=random() % 4 {
            let place = random() % damaged.len();
            damaged[place] = random() as u8;
        }
        fuzz_session(&damaged);
    }
}

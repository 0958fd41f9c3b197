//! The header agrees with the code. `tests/pager_c.sh` uses both from C and C++.

use super::plan::{HELPERS_MAX, PAGES_MAX};
use super::{Config, Refusal, StoreTable};
use crate::PAGE_LEN;
use std::format;
use std::string::String;
use std::vec::Vec;

const HEADER: &str = include_str!("../../include/traceless_pager.h");
const CODE: &str = include_str!("mod.rs");

/// The text without comments, and with one blank for each run of white space.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("/*") {
        plain.push_str(before);
        rest = behind.split_once("*/").expect("a comment ends").1;
    }
    plain.push_str(rest);
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn in_c(rust: &str) -> &str {
    match rust {
        "u32" => "uint32_t ",
        "u64" => "uint64_t ",
        "usize" => "size_t ",
        "c_int" => "int ",
        "*mut u8" => "uint8_t *",
        "*mut u64" => "uint64_t *",
        "*mut usize" => "size_t *",
        "*mut c_void" => "void *",
        "*const Config" => "const traceless_pager_config *",
        "*const StoreTable" => "const traceless_pager_store *",
        other => panic!("{other} has no name in C yet"),
    }
}

/// The functions of the code, as C declares them.
fn declarations() -> Vec<String> {
    let functions = CODE.split("pub unsafe extern \"C\" fn ").skip(1);
    let declaration = |function: &str| {
        let (name, behind) = function.split_once('(').unwrap();
        let (arguments, behind) = behind.split_once(") -> ").unwrap();
        let result = in_c(behind.split_once(" {").unwrap().0);
        let arguments = arguments.split(',').map(str::trim).filter(|each| !each.is_empty());
        let arguments = arguments.map(|argument| {
            let (name, of) = argument.split_once(": ").unwrap();
            format!("{}{name}", in_c(of))
        });
        format!("{result}{name}({});", arguments.collect::<Vec<_>>().join(", "))
    };
    functions.map(declaration).collect()
}

#[test]
fn the_header_declares_every_function() {
    let (header, declared) = (plain(HEADER), declarations());
    for declaration in &declared {
        assert!(header.contains(declaration.as_str()), "not in the header: {declaration}");
    }
    // Functions begin their line; members of the table do not.
    let in_header = HEADER.lines().filter(|line| {
        line.contains("traceless_pager_") && line.contains('(') && !line.starts_with([' ', '*'])
    });
    assert_eq!((declared.len(), in_header.count()), (9, 9));
}

#[test]
fn the_header_has_the_same_constants() {
    let header = plain(HEADER);
    let has = |name: &str, value: String| {
        let define = format!("#define TRACELESS_PAGER_{name} {value}");
        assert!(header.contains(&define), "not in the header: {define}");
    };
    for (name, refusal) in [
        ("INVALID", Refusal::Invalid),
        ("TOO_SMALL", Refusal::TooSmall),
        ("TAMPERED", Refusal::Tampered),
        ("STORE", Refusal::Store),
        ("FAILED", Refusal::Failed),
        ("BUSY", Refusal::Busy),
        ("MISPLACED", Refusal::Misplaced),
        ("STASH_FULL", Refusal::StashFull),
        ("RANDOM", Refusal::Random),
    ] {
        has(name, format!("({})", refusal as i32));
    }
    has("PAGE_LEN", format!("{PAGE_LEN}"));
    has("PAGES_MAX", format!("UINT64_C({PAGES_MAX})"));
    has("HELPERS_MAX", format!("{HELPERS_MAX}"));
    has("ALIGN", format!("{}", align_of::<super::pager::Head>().max(16)));
    assert!(align_of::<super::pager::Head>() <= 16);
    assert_eq!((size_of::<Config>(), size_of::<StoreTable>()), (32, 5 * size_of::<usize>()));
}

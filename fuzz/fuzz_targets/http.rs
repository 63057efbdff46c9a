//! Any requests to `reshard serve`: only those of its own page with its own token get anything, as judged in other words, and any query gets JSON:
//! plans of which every strategy moves as many elements, or an error with its place in what was typed.
//!
//! A request is a line of decisions, one with method and target, and one for each header. The parser of HTTP is hyper's, so it is left out.

#![no_main]

/// The sources of the program that an answer needs: it has no library.
#[allow(dead_code)]
#[path = "../../crates/reshard-cli/src"]
mod program {
    #[path = "serve/answers.rs"]
    pub mod answers;
    pub mod args;
    pub mod failure;
    pub mod json;
    pub mod message_table;
    pub mod page;
    pub mod problem;
    pub mod schedule;
    pub mod screen;
    pub mod simulate;
    pub mod words;
}

use clap::Parser;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};
use libfuzzer_sys::fuzz_target;
use program::answers::{Fields, Found, Site};
use program::simulate::SimulationRequest;
use program::{args, failure, json, message_table, page, problem, schedule, screen, simulate, words};
use std::net::SocketAddr;
use std::sync::LazyLock;

const TOKEN: &str = "t0k";
const OWN: &str = "10.0.0.7";

/// What is planned is small: it is the bytes that matter here.
const MAX_MESSAGES: u64 = 12;
const MAX_BLOCKS: u64 = 40;

/// A server that listens on the loopback, and one at all addresses, at the port of HTTP.
static SITES: LazyLock<[Site; 2]> = LazyLock::new(|| [site(8080, false), site(80, true)]);

fn site(port: u16, anywhere: bool) -> Site {
    let args = args::Args::try_parse_from(["reshard", "serve"]).unwrap();
    let args::Command::Serve(serve) = args.command else { panic!("another command") };
    Site::new(&serve.timed, TOKEN.into(), SocketAddr::from(([127, 0, 0, 1], port)), anywhere).unwrap()
}

fuzz_target!(|text: &[u8]| {
    let mut lines = text.split(|&byte| byte == b'\n');
    let (Some([decisions]), Some(line)) = (lines.next(), lines.next()) else { return };
    let (anywhere, has_body) = (decisions & 1 == 1, decisions & 2 == 2);
    let mut words = line.splitn(2, |&byte| byte == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (Ok(method), Ok(uri)) = (Method::from_bytes(method), Uri::try_from(target)) else { return };
    let mut head = Request::builder().method(&method).uri(uri).body(()).unwrap().into_parts().0;
    let mut headers = Vec::new();
    for line in lines {
        let mut words = line.splitn(2, |&byte| byte == b':');
        let (name, value) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().trim_ascii());
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) else {
            return;
        };
        head.headers.append(&name, value.clone());
        headers.push((name.as_str().to_string(), value));
    }
    let site = &SITES[usize::from(anywhere)];
    let reached = SocketAddr::from(([10, 0, 0, 7], 80));
    let wanted = if method == Method::GET && !has_body && is_own(&headers, anywhere) {
        wanted(target)
    } else {
        Wanted::Nothing
    };
    match (site.look(&head, has_body, Some(reached)), wanted) {
        (Found::Page, Wanted::Page) => {}
        (Found::Plan(query), Wanted::Plan(expected)) => {
            assert_eq!(query.as_bytes(), expected);
            plan(site, &query);
        }
        (Found::Refused(status, why), Wanted::Nothing) => {
            assert!(status.is_client_error() && why.ends_with('\n'), "{status}: {why}");
        }
        (_, wanted) => panic!("{wanted:?} was expected"),
    }
});

/// What a request may have, by the words of its target.
#[derive(Debug)]
enum Wanted<'t> {
    Page,
    Plan(&'t [u8]),
    Nothing,
}

fn wanted(target: &[u8]) -> Wanted<'_> {
    // A browser sends no fragment.
    let target = target.split(|&byte| byte == b'#').next().unwrap_or_default();
    let at = target.iter().position(|&byte| byte == b'?');
    let (path, query) = at.map_or((target, &target[..0]), |at| (&target[..at], &target[at + 1..]));
    match path {
        _ if path == format!("/{TOKEN}/").as_bytes() => Wanted::Page,
        _ if path == format!("/{TOKEN}/plan").as_bytes() => Wanted::Plan(query),
        _ => Wanted::Nothing,
    }
}

/// True if a request names this server, once, and comes from no other page.
fn is_own(headers: &[(String, HeaderValue)], anywhere: bool) -> bool {
    let all = |name: &'static str| {
        headers.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_bytes())
    };
    let port = if anywhere { "80" } else { "8080" };
    let is_name = |name: &[u8]| {
        let Ok(name) = std::str::from_utf8(name) else { return false };
        let name = name.to_ascii_lowercase();
        // The port of HTTP is left out.
        let host = name.strip_suffix(&format!(":{port}")).or((port == "80").then_some(&name[..]));
        host.is_some_and(|host| {
            ["localhost", "127.0.0.1", "[::1]"].contains(&host) || anywhere && host == OWN
        })
    };
    let hosts: Vec<_> = all("host").collect();
    let origins: Vec<_> = all("origin").collect();
    matches!(hosts[..], [host] if is_name(host))
        && match origins[..] {
            [] => true,
            [origin] => origin.strip_prefix(b"http://").is_some_and(is_name),
            _ => false,
        }
}

/// Plans what a query asks for, if that is small.
fn plan(site: &Site, query: &str) {
    let fields = Fields::of(query);
    if SimulationRequest::read(&site.asked(&fields), true).is_ok_and(|request| is_large(&request)) {
        return;
    }
    let (status, answer) = site.planned(query);
    assert_eq!(status, 200, "{answer}");
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let error = &answer["error"];
    if !error.is_null() {
        assert!(!error["message"].as_str().unwrap().is_empty());
        let text = error["text"].as_str();
        assert_eq!(text.is_some(), error["field"].is_string());
        if let Some(field) = error["field"].as_str() {
            // The first of this name that has anything in it.
            let mut all = typed(query).filter(|(name, _)| *name == field).filter_map(|(_, value)| value);
            assert_eq!(all.find(|value| !value.trim().is_empty()).as_deref(), text);
        }
        if let Some(position) = error["position"].as_u64() {
            assert!(text.is_some_and(|text| position <= text.chars().count() as u64), "{error}");
        }
        return;
    }
    assert_eq!(answer["live"], format!("/{TOKEN}/plan"));
    let mut moved = None;
    for strategy in answer["strategies"].as_array().unwrap() {
        if strategy["refused"].is_string() {
            continue;
        }
        let messages = strategy["steps"].as_array().unwrap().iter().flat_map(|step| step.as_array().unwrap());
        let elems: u64 = messages.map(|message| message[2].as_u64().unwrap()).sum();
        assert_eq!(*moved.get_or_insert(elems), elems, "{}", strategy["name"]);
    }
    assert!(moved.is_some());
}

fn is_large(request: &SimulationRequest) -> bool {
    let problem = &request.move_request.problem;
    let blocks = |axis: &reshard_plan::Axis| {
        let mut start = 0;
        let ends = std::iter::from_fn(|| {
            start = axis.block_at(start)?.1;
            Some(start)
        });
        ends.take(MAX_BLOCKS as usize + 1).count() as u64
    };
    let sides = [problem.from(), problem.to()];
    sides.map(|side| side.grid().size()).into_iter().fold(1, u64::saturating_mul) > MAX_MESSAGES
        || sides.iter().flat_map(|side| side.axes()).map(blocks).sum::<u64>() > MAX_BLOCKS
}

/// The pairs of a query, what they say decoded, in other words: `None` if it is no text.
fn typed(query: &str) -> impl Iterator<Item = (&str, Option<String>)> {
    query.split('&').filter_map(|pair| pair.split_once('=')).map(|(name, value)| {
        let plain = |text: &[u8]| text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
        let mut pieces = value.as_bytes().split(|&byte| byte == b'%');
        let mut bytes: Vec<u8> = plain(pieces.next().unwrap_or_default());
        let digit = |byte: u8| char::from(byte).to_digit(16);
        for piece in pieces {
            let Some((&[one, two], rest)) = piece.split_first_chunk() else { return (name, None) };
            let (Some(one), Some(two)) = (digit(one), digit(two)) else { return (name, None) };
            bytes.push((16 * one + two) as u8);
            bytes.extend::<Vec<u8>>(plain(rest));
        }
        (name, String::from_utf8(bytes).ok())
    })
}

//! Timing side channel: the time of a rejection must not depend on how much of a token was guessed correctly.
//!
//! This is a measurement and not part of the ordinary tests: `cargo xtask stress timing`. `RECADO_RUNS` sets the number
//! of requests of each kind (100,000 for a release).

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use crate::harness::client::connect;
use crate::harness::rng::{TestRng, runs, seed};
use crate::harness::{GATEWAY_TOKEN, Options, Server};

/// Above this value of Welch's t, two means differ significantly. It is the usual bound for timing leaks.
const BOUND: f64 = 4.5;

/// Guesses with growing common prefixes with the token, and two of other lengths.
fn guesses() -> [String; 5] {
    let guess = |correct: usize| {
        let rest = "#".repeat(GATEWAY_TOKEN.len() - correct);
        format!("{}{rest}", &GATEWAY_TOKEN[..correct])
    };
    let length = GATEWAY_TOKEN.len();
    [
        guess(0),
        guess(length / 2),
        guess(length - 1),
        GATEWAY_TOKEN[..length - 1].to_owned(),
        "x".to_owned(),
    ]
}

/// Sends one request on an open connection and returns the time until its rejection, in microseconds.
fn time_rejection(stream: &mut TcpStream, request: &[u8], buffer: &mut [u8]) -> f64 {
    let began = Instant::now();
    stream.write_all(request).unwrap();
    let mut read = 0;
    while !buffer[..read].windows(4).any(|bytes| bytes == b"\r\n\r\n") || buffer[read - 1] != b'}' {
        let more = stream.read(&mut buffer[read..]).unwrap();
        assert!(more > 0, "the connection ended");
        read += more;
    }
    let took = began.elapsed().as_secs_f64() * 1e6;
    assert!(buffer.starts_with(b"HTTP/1.1 401"));
    took
}

/// Mean, variance and count of the fastest 90 %. Interference by the machine causes the slowest samples.
fn trimmed_stats(mut samples: Vec<f64>) -> (f64, f64, f64) {
    samples.sort_by(f64::total_cmp);
    samples.truncate(samples.len() * 9 / 10);
    let n = f64::from(u32::try_from(samples.len()).unwrap());
    let mean = samples.iter().sum::<f64>() / n;
    let variance = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, variance, n)
}

fn welch_t(left: (f64, f64, f64), right: (f64, f64, f64)) -> f64 {
    (left.0 - right.0) / (left.1 / left.2 + right.1 / right.2).sqrt()
}

/// F39.
#[test]
#[ignore = "measures time: cargo xtask stress timing"]
fn gateway_token_rejection_time_reveals_nothing() {
    let (runs, mut rng) = (runs(20_000), TestRng::of(seed(39), 0));
    // Without a reachable Redis the rate limiter admits every request.
    let options = Options::default().with("REDIS_URL", "redis://127.0.0.1:1");
    let server = Server::start(options.with("RUST_LOG", "off"));
    let guesses = guesses();
    let requests = guesses.each_ref().map(|guess| {
        format!(
            "POST /api/billing/webhook HTTP/1.1\r\nHost: x\r\ngateway-access-token: {guess}\r\nContent-Length: 0\r\n\r\n"
        )
    });
    let mut stream = connect(server.port());
    stream.set_nodelay(true).unwrap();
    let mut buffer = [0; 4096];
    for _ in 0..500 {
        time_rejection(&mut stream, requests[0].as_bytes(), &mut buffer);
    }
    let mut samples: [Vec<f64>; 5] = Default::default();
    for _ in 0..runs {
        // Rotates the order, so that the position in the round has no effect.
        let first = usize::try_from(rng.below(5)).unwrap();
        for at in (first..5).chain(0..first) {
            samples[at].push(time_rejection(&mut stream, requests[at].as_bytes(), &mut buffer));
        }
    }
    let stats = samples.map(trimmed_stats);
    for (guess, guess_stats) in guesses.iter().zip(stats).skip(1) {
        let t = welch_t(stats[0], guess_stats);
        println!("{guess:<24} {:.2} us, t = {t:.2}", guess_stats.0);
        // A shorter header is read faster, which reveals nothing: the client knows the length of its guess.
        assert!(
            guess.len() != GATEWAY_TOKEN.len() || t.abs() < BOUND,
            "{guess}: t = {t}"
        );
    }
}

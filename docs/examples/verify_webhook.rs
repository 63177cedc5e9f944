//! Verifies a webhook of Recado by the library of the standard (crate `standardwebhooks`): the body comes by standard
//! input, exactly as it was received; secret, id, timestamp and signature are arguments.
//!
//! `cargo run --example verify_webhook -- whsec_... ID TIMESTAMP SIGNATURE < body`
#![expect(clippy::print_stdout, reason = "an example says what it found")]

use std::error::Error;
use std::io::Read as _;

use http::HeaderMap;
use standardwebhooks::Webhook;

/// Whether the body came from Recado within the last five minutes.
fn verify(secret: &str, [id, timestamp, signature]: [&str; 3], body: &[u8]) -> Result<(), Box<dyn Error>> {
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", id.parse()?);
    headers.insert("webhook-timestamp", timestamp.parse()?);
    headers.insert("webhook-signature", signature.parse()?);
    Ok(Webhook::new(secret)?.verify(body, &headers)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [secret, id, timestamp, signature] = arguments.as_slice() else {
        return Err("usage: verify_webhook SECRET ID TIMESTAMP SIGNATURE < body".into());
    };
    let mut body = Vec::new();
    std::io::stdin().read_to_end(&mut body)?;
    verify(secret, [id, timestamp, signature], &body)?;
    println!("genuine");
    Ok(())
}

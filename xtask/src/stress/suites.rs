//! Every proof: its name, what it says, and the tests that it is made of.

use super::tools;
use crate::error::Result;
use crate::test::plans;

/// One statement about the product.
pub(super) struct StressSuite {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) how: How,
}

/// How it is tried.
pub(super) enum How {
    Tests {
        times: &'static Iterations,
        tests: &'static [Tests],
    },
    Tool(fn() -> Result<()>),
}

/// How often.
pub(super) struct Iterations {
    /// What is counted.
    pub(super) of: &'static str,
    pub(super) few: u64,
    pub(super) release: u64,
    /// The tests count them themselves; else all of them are repeated.
    pub(super) inside: bool,
}

/// Tests of one package whose names hold one of these.
pub(super) struct Tests {
    pub(super) package: &'static str,
    pub(super) target: &'static [&'static str],
    pub(super) names: &'static [&'static str],
    /// Also those that take too long, or too much quiet, for every day.
    pub(super) measured: bool,
}

const OUTSIDE: &[&str] = &["--test", "it"];
const INSIDE: &[&str] = &["--lib"];

const fn inside(of: &'static str, few: u64, release: u64) -> Iterations {
    Iterations {
        of,
        few,
        release,
        inside: true,
    }
}

const fn rounds(few: u64, release: u64) -> Iterations {
    Iterations {
        of: "rounds",
        few,
        release,
        inside: false,
    }
}

const fn tests(package: &'static str, target: &'static [&'static str], names: &'static [&'static str]) -> Tests {
    Tests {
        package,
        target,
        names,
        measured: false,
    }
}

const fn server(names: &'static [&'static str]) -> Tests {
    tests("recado-server", OUTSIDE, names)
}

const fn measured(names: &'static [&'static str]) -> Tests {
    Tests {
        measured: true,
        ..server(names)
    }
}

const fn proof(
    name: &'static str,
    about: &'static str,
    times: &'static Iterations,
    tests: &'static [Tests],
) -> StressSuite {
    StressSuite {
        name,
        about,
        how: How::Tests { times, tests },
    }
}

const fn tool(name: &'static str, about: &'static str, tool: fn() -> Result<()>) -> StressSuite {
    StressSuite {
        name,
        about,
        how: How::Tool(tool),
    }
}

/// In the order in which they are listed.
pub(super) const SUITES: &[StressSuite] = &[
    proof(
        "kills",
        "servers killed within a campaign: nobody is written to twice, nobody is lost",
        &inside("campaigns", 20, 500),
        &[server(&["faults::kills"])],
    ),
    proof(
        "acknowledged",
        "what was acknowledged survives the death of server and database",
        &inside("deaths", 20, 200),
        &[server(&["faults::acknowledged"])],
    ),
    proof(
        "quota",
        "no history of racing runs goes beyond the month's quota or leaves a place held",
        &inside("histories", 200, 10_000),
        &[tests("recado-postgres", OUTSIDE, &["histories::", "quota_races::"])],
    ),
    proof(
        "isolation",
        "no route and no table gives or changes another account's rows",
        &rounds(1, 1),
        &[
            server(&["matrix::", "tenants::", "references::", "assignment::", "standings::"]),
            tests("recado-postgres", OUTSIDE, &["isolation::", "pool::"]),
        ],
    ),
    proof(
        "bytes",
        "requests with random bytes changed, and bodies of the worst kind: no fault, no panic, no growth",
        &inside("requests", 20_000, 1_000_000),
        &[server(&["faults::fuzz", "faults::bodies"])],
    ),
    proof(
        "model",
        "stores and server do what models of them do, and planted bugs are found",
        &inside("histories", 200, 10_000),
        &[tests("recado-postgres", OUTSIDE, &["model::"]), server(&["model::"])],
    ),
    proof(
        "simulation",
        "worlds of dying workers, faults and news end well, and planted bugs are found",
        &inside("worlds", 2_000, 10_000),
        &[tests("recado-domain", INSIDE, &["simulation::"])],
    ),
    proof(
        "recovery",
        "after the database or Redis is back, service within 2 s and campaigns within 5 s",
        &rounds(1, 10),
        &[server(&[
            "faults::outages",
            "faults::disks",
            "limiter::a_redis_in_trouble",
        ])],
    ),
    proof(
        "limiter",
        "a counter that is gone, silent, slow, spoiled or full costs little and stops nobody",
        &rounds(1, 10),
        &[
            tests("recado-redis", OUTSIDE, &["faults::", "a_dead_redis"]),
            server(&["limiter::", "limits::"]),
        ],
    ),
    proof(
        "rollout",
        "servers are replaced and the schema grows under load, and no request fails",
        &inside("replacements", 5, 50),
        &[server(&["faults::rollouts", "faults::stops"])],
    ),
    proof(
        "egress",
        "nothing that a tenant names leads into this network",
        &rounds(1, 1),
        &[
            tests("recado-domain", INSIDE, &["egress::"]),
            tests("recado-gateways", OUTSIDE, &["egress::", "pages::", "webhooks::"]),
            server(&["brand::"]),
        ],
    ),
    proof(
        "secrets",
        "no secret stands in logs, tables, counters or answers",
        &rounds(1, 1),
        &[server(&[
            "faults::secrets",
            "a_card_is_found_nowhere",
            "a_key_is_whole",
            "holds_no_secrets",
        ])],
    ),
    proof(
        "clocks",
        "servers whose clocks are an hour wrong decide alike",
        &rounds(1, 5),
        &[server(&["faults::clocks"])],
    ),
    proof(
        "disconnects",
        "clients that hang up anywhere leave nothing behind and learn nothing",
        &inside("clients", 2_000, 20_000),
        &[
            server(&["disconnects::"]),
            tests("recado-postgres", OUTSIDE, &["pool::requests_cancelled"]),
        ],
    ),
    proof(
        "connections",
        "slow, deaf and ambiguous clients hold up nobody",
        &rounds(1, 5),
        &[measured(&["faults::connections"])],
    ),
    proof(
        "timing",
        "the time of a refusal tells nothing of the gateway's token",
        &inside("requests of each kind", 20_000, 100_000),
        &[measured(&["faults::timing"])],
    ),
    tool(
        "versions",
        "no version of PostgreSQL reads all rows of an account to find a few",
        plans::prove,
    ),
    tool(
        "supply",
        "dependencies are at or above the versions that mended what is known, and nothing is reported of them",
        tools::supply,
    ),
    tool(
        "mutants",
        "the tests notice when a guard, a limit or a permission is changed",
        tools::mutants,
    ),
];

//! Parses a rate card's CSV file, and writes one. Any invalid line refuses the whole file.

use std::collections::{BTreeMap, BTreeSet};

use time::Date;
use time::macros::format_description;

use super::RateRow;
use super::country::is_country_code;
use crate::contacts::LineError;
use crate::contacts::csv::{CsvDecoder, Record};
use crate::shared::{Amount, Zone};

/// The most errors of a refusal.
const MAX_ERRORS: usize = 100;

const REQUIRED: [&str; 5] = ["market", "currency", "category", "rate", "effective_from"];
const COUNTRIES: &str = "countries";
const ZONE: &str = "zone";
const FREE: &str = "free_per_number_month";

/// The most characters of a market's or category's name.
const WORD_CHARS: usize = 64;

/// The largest rate, and the most decimals of one.
const MAX_RATE: i64 = 1000;
const RATE_DECIMALS: u32 = 6;

/// The largest number of free messages.
const MAX_FREE: i64 = 1_000_000_000;

/// What identifies a row of a card.
type Key = (String, String, String, Date);

/// Parses a file. The rows are those of the file in its order, and there is at least one.
pub fn parse_rates(file: &[u8]) -> Result<Vec<RateRow>, Vec<LineError>> {
    let mut decoder = CsvDecoder::default();
    let mut records = decoder.feed(file);
    records.extend(decoder.finish());
    let mut records = records.into_iter();
    let header = records.next().ok_or_else(|| vec![error(1, "the file is empty")])?;
    let columns = Columns::of(&header).map_err(|message| vec![error(header.line, message)])?;
    let mut reader = RowReader {
        columns,
        keys: BTreeSet::new(),
        markets: BTreeMap::new(),
    };
    let (mut rows, mut errors) = (Vec::new(), Vec::new());
    for record in records {
        match reader.row(&record) {
            Ok(row) => rows.push((record.line, row)),
            Err(message) => errors.push(error(record.line, message)),
        }
    }
    let rows = reader.with_countries(rows, &mut errors);
    if rows.is_empty() && errors.is_empty() {
        errors.push(error(header.line, "the file has no rates"));
    }
    errors.sort_by_key(|error| error.line);
    errors.truncate(MAX_ERRORS);
    if errors.is_empty() { Ok(rows) } else { Err(errors) }
}

fn error(line: u64, message: impl Into<String>) -> LineError {
    LineError {
        line,
        message: message.into(),
    }
}

/// The position of each column.
struct Columns(BTreeMap<String, usize>);

impl Columns {
    fn of(header: &Record) -> Result<Self, String> {
        let cells = header.cells.as_ref().ok_or("the header line is not readable")?;
        let mut columns = BTreeMap::new();
        for (position, cell) in cells.iter().enumerate() {
            let name = cell.trim().to_ascii_lowercase();
            if columns.insert(name, position).is_some() {
                return Err(format!("the header line names {} twice", cell.trim()));
            }
        }
        let missing: Vec<&str> = REQUIRED
            .into_iter()
            .filter(|name| !columns.contains_key(*name))
            .collect();
        match missing.is_empty() {
            true => Ok(Self(columns)),
            false => Err(format!("the header line lacks {}", missing.join(", "))),
        }
    }

    fn cell<'a>(&self, cells: &'a [String], name: &str) -> &'a str {
        let position = self.0.get(name).copied();
        let cell = position.and_then(|position| cells.get(position));
        cell.map_or("", |cell| cell.trim())
    }
}

struct RowReader {
    columns: Columns,
    keys: BTreeSet<Key>,
    /// The countries of each market. A market may name them on some of its lines.
    markets: BTreeMap<String, BTreeSet<String>>,
}

impl RowReader {
    fn row(&mut self, record: &Record) -> Result<RateRow, String> {
        let cells = record.cells.as_ref().ok_or("line is too long or not UTF-8")?;
        let cell = |name| self.columns.cell(cells, name);
        let market = word("market", cell("market"))?;
        let countries = countries(cell(COUNTRIES))?;
        let currency = cell("currency");
        if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err("currency must be three capital letters, such as USD".to_owned());
        }
        let category = word("category", cell("category"))?.to_lowercase();
        let rate = rate(cell("rate"))?;
        let effective_from = date(cell("effective_from"))?;
        let zone_name = Some(cell(ZONE)).filter(|zone| !zone.is_empty()).unwrap_or("UTC");
        let zone: Zone = zone_name
            .parse()
            .map_err(|_| "zone must be the name of a time zone, such as America/Sao_Paulo")?;
        let effective_at = zone
            .begin_of(effective_from)
            .ok_or("effective_from is outside the calendar's range")?;
        let free_per_number_month = free(cell(FREE))?;
        let key = (market.clone(), currency.to_owned(), category.clone(), effective_from);
        let row = RateRow {
            market: market.clone(),
            countries: vec![],
            currency: currency.to_owned(),
            category,
            rate,
            effective_from,
            zone: zone_name.to_owned(),
            effective_at,
            free_per_number_month,
        };
        if !self.keys.insert(key) {
            return Err("an earlier line has the same market, currency, category and effective_from".to_owned());
        }
        self.markets.entry(market).or_default().extend(countries);
        Ok(row)
    }

    /// Sets the countries of every row. A market without any is its own code, and a country has one market.
    fn with_countries(&self, rows: Vec<(u64, RateRow)>, errors: &mut Vec<LineError>) -> Vec<RateRow> {
        let mut markets: BTreeMap<String, String> = BTreeMap::new();
        let mut complete = Vec::with_capacity(rows.len());
        for (line, mut row) in rows {
            let named = self.markets.get(&row.market).cloned().unwrap_or_default();
            let own_code = row.market.to_ascii_uppercase();
            row.countries = match named.is_empty() {
                false => named.into_iter().collect(),
                true if is_country_code(&own_code) => vec![own_code],
                true => {
                    errors.push(error(
                        line,
                        "countries is required for a market that is not a country's ISO code",
                    ));
                    continue;
                }
            };
            let taken = row.countries.iter().find_map(|country| {
                let market = markets.entry(country.clone()).or_insert_with(|| row.market.clone());
                (*market != row.market).then(|| format!("countries names {country}, which is part of {market}"))
            });
            match taken {
                Some(message) => errors.push(error(line, message)),
                None => complete.push(row),
            }
        }
        complete
    }
}

fn word(name: &str, text: &str) -> Result<String, String> {
    let fits = (1..=WORD_CHARS).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    match fits {
        true => Ok(text.to_owned()),
        false => Err(format!("{name} must have 1 to 64 characters")),
    }
}

fn countries(text: &str) -> Result<Vec<String>, String> {
    let codes = text.split(';').map(|code| code.trim().to_ascii_uppercase());
    let codes: Vec<String> = codes.filter(|code| !code.is_empty()).collect();
    match codes.iter().find(|code| !is_country_code(code)) {
        None => Ok(codes),
        Some(code) => Err(format!("countries has {code}, which is not an ISO code of two letters")),
    }
}

fn rate(text: &str) -> Result<Amount, String> {
    let rate = Amount::parse(text).filter(|rate| !rate.is_negative() && *rate <= Amount::from(MAX_RATE));
    let rate = rate.filter(|rate| rate.decimals() <= RATE_DECIMALS);
    rate.ok_or_else(|| "rate must be a number from 0 to 1000 with at most 6 decimals".to_owned())
}

fn date(text: &str) -> Result<Date, String> {
    let format = format_description!("[year]-[month]-[day]");
    let parsed = Date::parse(text, &format)
        .ok()
        .filter(|date| text.len() == 10 && date.year() >= 1);
    parsed.ok_or_else(|| "effective_from must be a date like 2026-01-31".to_owned())
}

fn free(text: &str) -> Result<Option<i64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let free = text.parse().ok().filter(|free| (0..=MAX_FREE).contains(free));
    match free {
        Some(free) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Some(free)),
        _ => Err("free_per_number_month must be a whole number from 0 to 1000000000".to_owned()),
    }
}

/// Writes rows as CSV. The file parses to the same rows.
pub fn rates_csv(rows: &[RateRow]) -> String {
    let mut csv = format!("{},{COUNTRIES},{ZONE},{FREE}\r\n", REQUIRED.join(","));
    for row in rows {
        let cells = [
            row.market.clone(),
            row.currency.clone(),
            row.category.clone(),
            row.rate.to_string(),
            row.effective_from.to_string(),
            row.countries.join(";"),
            row.zone.clone(),
            row.free_per_number_month
                .map(|free| free.to_string())
                .unwrap_or_default(),
        ];
        csv.push_str(&cells.map(|cell| quoted(&cell)).join(","));
        csv.push_str("\r\n");
    }
    csv
}

fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', ';', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use time::macros::{date, datetime};

    use super::*;

    const HEADER: &str = "market,currency,category,rate,effective_from,countries,zone,free_per_number_month\n";

    fn errors(lines: &str) -> Vec<(u64, String)> {
        let parsed = parse_rates(format!("{HEADER}{lines}").as_bytes());
        let errors = parsed.unwrap_err().into_iter();
        errors.map(|error| (error.line, error.message)).collect()
    }

    #[test]
    fn file_is_parsed_and_written_back() {
        let file = "\u{feff}rate,market,category,currency,effective_from,note,zone,countries,free_per_number_month\r\n\
            0.0625,BR,MARKETING,USD,2026-07-01,x,America/Sao_Paulo,,\r\n\
            0,\"Europe, rest\",service,EUR,2026-10-01,,,pt; ES,1000\r\n\
            0.1,\"Europe, rest\",utility,EUR,2026-10-01,,,,\r\n";
        let rows = parse_rates(file.as_bytes()).unwrap();
        assert_eq!(rows.len(), 3);
        assert_eq!(
            (rows[0].market.as_str(), rows[0].category.as_str()),
            ("BR", "marketing")
        );
        assert_eq!(rows[0].countries, ["BR"]);
        assert_eq!(rows[0].effective_at, datetime!(2026-07-01 3:00 UTC));
        assert_eq!(rows[1].effective_from, date!(2026 - 10 - 01));
        assert_eq!(
            (rows[1].effective_at, rows[1].rate),
            (datetime!(2026-10-01 0:00 UTC), Amount::ZERO)
        );
        assert_eq!(rows[2].countries, ["ES", "PT"], "a market names its countries once");
        assert_eq!(rows[1].free_per_number_month, Some(1000));
        assert_eq!(parse_rates(rates_csv(&rows).as_bytes()), Ok(rows));
    }

    #[test]
    fn header_without_a_required_column_is_refused() {
        let refused = parse_rates(b"market,currency,rate\nBR,USD,1\n").unwrap_err();
        assert_eq!(refused, [error(1, "the header line lacks category, effective_from")]);
        assert_eq!(parse_rates(b"").unwrap_err(), [error(1, "the file is empty")]);
        assert_eq!(
            parse_rates(HEADER.as_bytes()).unwrap_err(),
            [error(1, "the file has no rates")]
        );
        assert!(parse_rates(b"market,market,currency,category,rate,effective_from\n").is_err());
    }

    #[test]
    fn every_bad_line_is_reported_with_its_number() {
        let bad = [
            ",USD,m,1,2026-01-01,,,",
            "BR,usd,m,1,2026-01-01,,,",
            "BR,USD,,1,2026-01-01,,,",
            "BR,USD,m,-1,2026-01-01,,,",
            "BR,USD,m,1000.01,2026-01-01,,,",
            "BR,USD,m,0.0000001,2026-01-01,,,",
            "BR,USD,m,1e1,2026-01-01,,,",
            "BR,USD,m,1,2026-02-30,,,",
            "BR,USD,m,1,01/02/2026,,,",
            "BR,USD,m,1,2026-01-01,BRA,,",
            "BR,USD,m,1,2026-01-01,,Nowhere/City,",
            "BR,USD,m,1,2026-01-01,,,-1",
            "Rest,USD,m,1,2026-01-01,,,",
        ];
        let found = errors(&bad.join("\n"));
        let lines: Vec<u64> = found.iter().map(|(line, _)| *line).collect();
        let expected: Vec<u64> = (2..).take(bad.len()).collect();
        assert_eq!(lines, expected, "{found:?}");
        assert_eq!(errors(&"x\n".repeat(200)).len(), MAX_ERRORS);
    }

    #[test]
    fn row_and_country_belong_to_one_line_and_market() {
        let twice = errors("BR,USD,m,1,2026-01-01,,,\nBR,USD,M,2,2026-01-01,,,");
        assert_eq!(twice.len(), 1, "{twice:?}");
        assert_eq!(twice[0].0, 3);
        let shared = errors("PT,USD,m,1,2026-01-01,,,\nEurope,USD,m,2,2026-01-01,ES;PT,,");
        assert_eq!(shared, [(3, "countries names PT, which is part of PT".to_owned())]);
        for largest in ["1000", "0.000001", "0"] {
            let file = format!("{HEADER}BR,USD,m,{largest},2026-01-01,,,");
            assert!(parse_rates(file.as_bytes()).is_ok(), "{largest}");
        }
    }
}

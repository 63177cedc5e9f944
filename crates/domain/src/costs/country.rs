//! The country of a phone number or WhatsApp user id. It selects the market of a rate card.
//!
//! Source: the country codes of ITU-T E.164 and the area codes of the North American Numbering Plan (2026-07). Territories
//! that share the code of another country count as that country, except in the North American plan and Kazakhstan.

/// The length of a phone's prefix that decides on its country: the plus sign and four digits.
pub const COUNTRY_PREFIX: usize = 5;

/// Country codes of two and three digits.
const CODES: &str = "20EG 211SS 212MA 213DZ 216TN 218LY 220GM 221SN 222MR 223ML 224GN 225CI 226BF 227NE 228TG 229BJ \
    230MU 231LR 232SL 233GH 234NG 235TD 236CF 237CM 238CV 239ST 240GQ 241GA 242CG 243CD 244AO 245GW 246IO 247AC 248SC \
    249SD 250RW 251ET 252SO 253DJ 254KE 255TZ 256UG 257BI 258MZ 260ZM 261MG 262RE 263ZW 264NA 265MW 266LS 267BW 268SZ \
    269KM 27ZA 290SH 291ER 297AW 298FO 299GL 30GR 31NL 32BE 33FR 34ES 350GI 351PT 352LU 353IE 354IS 355AL 356MT 357CY \
    358FI 359BG 36HU 370LT 371LV 372EE 373MD 374AM 375BY 376AD 377MC 378SM 379VA 380UA 381RS 382ME 383XK 385HR 386SI \
    387BA 389MK 39IT 40RO 41CH 420CZ 421SK 423LI 43AT 44GB 45DK 46SE 47NO 48PL 49DE 500FK 501BZ 502GT 503SV 504HN \
    505NI 506CR 507PA 508PM 509HT 51PE 52MX 53CU 54AR 55BR 56CL 57CO 58VE 590GP 591BO 592GY 593EC 594GF 595PY 596MQ \
    597SR 598UY 599CW 60MY 61AU 62ID 63PH 64NZ 65SG 66TH 670TL 672NF 673BN 674NR 675PG 676TO 677SB 678VU 679FJ 680PW \
    681WF 682CK 683NU 685WS 686KI 687NC 688TV 689PF 690TK 691FM 692MH 7RU 76KZ 77KZ 81JP 82KR 84VN 850KP 852HK 853MO \
    855KH 856LA 86CN 880BD 886TW 90TR 91IN 92PK 93AF 94LK 95MM 960MV 961LB 962JO 963SY 964IQ 965KW 966SA 967YE 968OM \
    970PS 971AE 972IL 973BH 974QA 975BT 976MN 977NP 98IR 992TJ 993TM 994AZ 995GE 996KG 998UZ";

/// Area codes of the North American plan outside of the United States.
const AREA_CODES: &str = "242BS 246BB 264AI 268AG 284VG 340VI 345KY 441BM 473GD 649TC 658JM 664MS 670MP 671GU 684AS \
    721SX 758LC 767DM 784VC 787PR 809DO 829DO 849DO 868TT 869KN 876JM 939PR";

const CANADA: &str = "204 226 236 249 250 257 263 289 306 343 354 365 367 368 382 387 403 416 418 428 431 437 438 450 \
    460 468 474 506 514 519 537 548 568 579 581 584 587 600 604 613 622 633 639 644 647 655 672 677 683 688 705 709 742 \
    753 778 780 782 807 819 825 867 873 879 902 905";

/// The codes of ISO 3166, and those that phone numbers use beside them: Ascension and Kosovo.
const COUNTRIES: &str = "AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW \
    BY BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI \
    FJ FK FM FO FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN \
    IO IQ IR IS IT JE JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME \
    MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF \
    PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV \
    SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS YE \
    YT ZA ZM ZW \
    AC XK";

/// The ISO 3166 code of a phone's country. `phone` is a number in E.164 form or a prefix of one with at least
/// [`COUNTRY_PREFIX`] characters.
pub fn country_of_phone(phone: &str) -> Option<&'static str> {
    let digits = phone.strip_prefix('+')?;
    if let Some(national) = digits.strip_prefix('1') {
        let area = national.get(..3).unwrap_or(national);
        let is_canadian = CANADA.split(' ').any(|code| code == area);
        return Some(if is_canadian {
            "CA"
        } else {
            find(AREA_CODES, area).unwrap_or("US")
        });
    }
    let prefixes = (1..=3).rev().filter_map(|length| digits.get(..length));
    prefixes.into_iter().find_map(|prefix| find(CODES, prefix))
}

/// The country with exactly this code.
fn find(codes: &'static str, code: &str) -> Option<&'static str> {
    let mut countries = codes.split(' ').filter_map(|entry| entry.strip_prefix(code));
    countries.find(|rest| rest.len() == 2 && rest.bytes().all(|byte| byte.is_ascii_uppercase()))
}

/// The country of a contact: of its phone number, else of its WhatsApp user id, which begins with the country's code.
pub fn country_of(phone: Option<&str>, wa_user_id: Option<&str>) -> Option<String> {
    let by_phone = phone.and_then(country_of_phone).map(str::to_owned);
    by_phone.or_else(|| {
        let (country, _) = wa_user_id?.split_once('.')?;
        is_country_code(country).then(|| country.to_owned())
    })
}

/// Whether the text is the code of a country, in capitals.
pub(super) fn is_country_code(text: &str) -> bool {
    COUNTRIES.split(' ').any(|code| code == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_country_of_a_phone_has_a_code() {
        let codes = CODES.split(' ').chain(AREA_CODES.split(' '));
        let countries = codes.map(|entry| entry.trim_start_matches(|c: char| c.is_ascii_digit()));
        assert_eq!(countries.filter(|country| !is_country_code(country)).count(), 0);
        // A file with these codes would price nothing.
        assert!(["UK", "ZZ", "br", "B", ""].iter().all(|text| !is_country_code(text)));
    }

    #[test]
    fn country_is_that_of_the_longest_matching_code() {
        for (phone, country) in [
            ("+5511961234567", Some("BR")),
            ("+13125550100", Some("US")),
            ("+14165550100", Some("CA")),
            ("+18765550100", Some("JM")),
            ("+79161234567", Some("RU")),
            ("+77011234567", Some("KZ")),
            ("+35312345678", Some("IE")),
            ("+3912345678", Some("IT")),
            ("+447911123456", Some("GB")),
            ("+919812345678", Some("IN")),
            ("+9991234567", None),
            ("5511", None),
        ] {
            assert_eq!(country_of_phone(phone), country, "{phone}");
            let prefix = phone.get(..COUNTRY_PREFIX).unwrap_or(phone);
            assert_eq!(country_of_phone(prefix), country, "{prefix}");
        }
    }

    #[test]
    fn user_id_has_the_country_of_a_contact_without_a_phone() {
        let country = |phone, user_id| country_of(phone, user_id);
        assert_eq!(country(Some("+351912345678"), Some("BR.1")).as_deref(), Some("PT"));
        assert_eq!(country(None, Some("BR.ENT.15")).as_deref(), Some("BR"));
        assert_eq!(country(None, Some("b.15")), None);
        assert_eq!(country(None, None), None);
    }
}

//! The time zone of a contact: its own, else that of its phone number, else the account's.
//!
//! Source: `zone.tab` of the IANA time zone database (2025b), for the countries of phone numbers. The area codes are those
//! of Anatel.

use crate::costs::country_of_phone;
use crate::shared::{Zone, ZoneName};

/// The zones of Brazilian area codes that do not follow `America/Sao_Paulo`.
const BRAZILIAN_AREAS: [(&str, &str); 8] = [
    ("65", "America/Cuiaba"),
    ("66", "America/Cuiaba"),
    ("67", "America/Campo_Grande"),
    ("68", "America/Rio_Branco"),
    ("69", "America/Porto_Velho"),
    ("92", "America/Manaus"),
    ("95", "America/Boa_Vista"),
    ("97", "America/Manaus"),
];

/// The zone of every other Brazilian area code.
const BRAZIL: &str = "America/Sao_Paulo";

/// The countries with one zone, by the country of a phone number.
const COUNTRY_ZONES: &str = "AD=Europe/Andorra AE=Asia/Dubai AF=Asia/Kabul AG=America/Antigua AI=America/Anguilla AL=Europe/Tirane \
    AM=Asia/Yerevan AO=Africa/Luanda AS=Pacific/Pago_Pago AT=Europe/Vienna AW=America/Aruba AZ=Asia/Baku \
    BA=Europe/Sarajevo BB=America/Barbados BD=Asia/Dhaka BE=Europe/Brussels BF=Africa/Ouagadougou BG=Europe/Sofia \
    BH=Asia/Bahrain BI=Africa/Bujumbura BJ=Africa/Porto-Novo BM=Atlantic/Bermuda BN=Asia/Brunei BO=America/La_Paz \
    BS=America/Nassau BT=Asia/Thimphu BW=Africa/Gaborone BY=Europe/Minsk BZ=America/Belize CF=Africa/Bangui \
    CG=Africa/Brazzaville CH=Europe/Zurich CI=Africa/Abidjan CK=Pacific/Rarotonga CM=Africa/Douala CO=America/Bogota \
    CR=America/Costa_Rica CU=America/Havana CV=Atlantic/Cape_Verde CW=America/Curacao CZ=Europe/Prague \
    DJ=Africa/Djibouti DK=Europe/Copenhagen DM=America/Dominica DO=America/Santo_Domingo DZ=Africa/Algiers \
    EE=Europe/Tallinn EG=Africa/Cairo ER=Africa/Asmara ET=Africa/Addis_Ababa FI=Europe/Helsinki FJ=Pacific/Fiji \
    FK=Atlantic/Stanley FO=Atlantic/Faroe FR=Europe/Paris GA=Africa/Libreville GB=Europe/London GD=America/Grenada \
    GE=Asia/Tbilisi GF=America/Cayenne GH=Africa/Accra GI=Europe/Gibraltar GM=Africa/Banjul GN=Africa/Conakry \
    GP=America/Guadeloupe GQ=Africa/Malabo GR=Europe/Athens GT=America/Guatemala GU=Pacific/Guam GW=Africa/Bissau \
    GY=America/Guyana HK=Asia/Hong_Kong HN=America/Tegucigalpa HR=Europe/Zagreb HT=America/Port-au-Prince \
    HU=Europe/Budapest IE=Europe/Dublin IL=Asia/Jerusalem IN=Asia/Kolkata IO=Indian/Chagos IQ=Asia/Baghdad \
    IR=Asia/Tehran IS=Atlantic/Reykjavik IT=Europe/Rome JM=America/Jamaica JO=Asia/Amman JP=Asia/Tokyo \
    KE=Africa/Nairobi KG=Asia/Bishkek KH=Asia/Phnom_Penh KM=Indian/Comoro KN=America/St_Kitts KP=Asia/Pyongyang \
    KR=Asia/Seoul KW=Asia/Kuwait KY=America/Cayman LA=Asia/Vientiane LB=Asia/Beirut LC=America/St_Lucia \
    LI=Europe/Vaduz LK=Asia/Colombo LR=Africa/Monrovia LS=Africa/Maseru LT=Europe/Vilnius LU=Europe/Luxembourg \
    LV=Europe/Riga LY=Africa/Tripoli MA=Africa/Casablanca MC=Europe/Monaco MD=Europe/Chisinau ME=Europe/Podgorica \
    MG=Indian/Antananarivo MK=Europe/Skopje ML=Africa/Bamako MM=Asia/Yangon MO=Asia/Macau MP=Pacific/Saipan \
    MQ=America/Martinique MR=Africa/Nouakchott MS=America/Montserrat MT=Europe/Malta MU=Indian/Mauritius \
    MV=Indian/Maldives MW=Africa/Blantyre MZ=Africa/Maputo NA=Africa/Windhoek NC=Pacific/Noumea NE=Africa/Niamey \
    NF=Pacific/Norfolk NG=Africa/Lagos NI=America/Managua NL=Europe/Amsterdam NO=Europe/Oslo NP=Asia/Kathmandu \
    NR=Pacific/Nauru NU=Pacific/Niue OM=Asia/Muscat PA=America/Panama PE=America/Lima PH=Asia/Manila PK=Asia/Karachi \
    PL=Europe/Warsaw PM=America/Miquelon PR=America/Puerto_Rico PW=Pacific/Palau PY=America/Asuncion QA=Asia/Qatar \
    RE=Indian/Reunion RO=Europe/Bucharest RS=Europe/Belgrade RW=Africa/Kigali SA=Asia/Riyadh SB=Pacific/Guadalcanal \
    SC=Indian/Mahe SD=Africa/Khartoum SE=Europe/Stockholm SG=Asia/Singapore SH=Atlantic/St_Helena \
    SI=Europe/Ljubljana SK=Europe/Bratislava SL=Africa/Freetown SM=Europe/San_Marino SN=Africa/Dakar \
    SO=Africa/Mogadishu SR=America/Paramaribo SS=Africa/Juba ST=Africa/Sao_Tome SV=America/El_Salvador \
    SX=America/Lower_Princes SY=Asia/Damascus SZ=Africa/Mbabane TC=America/Grand_Turk TD=Africa/Ndjamena \
    TG=Africa/Lome TH=Asia/Bangkok TJ=Asia/Dushanbe TK=Pacific/Fakaofo TL=Asia/Dili TM=Asia/Ashgabat TN=Africa/Tunis \
    TO=Pacific/Tongatapu TR=Europe/Istanbul TT=America/Port_of_Spain TV=Pacific/Funafuti TW=Asia/Taipei \
    TZ=Africa/Dar_es_Salaam UG=Africa/Kampala UY=America/Montevideo VA=Europe/Vatican VC=America/St_Vincent \
    VE=America/Caracas VG=America/Tortola VI=America/St_Thomas VN=Asia/Ho_Chi_Minh VU=Pacific/Efate \
    WF=Pacific/Wallis WS=Pacific/Apia YE=Asia/Aden ZA=Africa/Johannesburg ZM=Africa/Lusaka ZW=Africa/Harare";

/// The zone whose clock a contact follows. `phone` is a number in E.164 form.
pub fn contact_zone(own: Option<&ZoneName>, phone: Option<&str>, account: &ZoneName) -> Zone {
    if let Some(own) = own {
        return own.zone();
    }
    let by_phone = phone.and_then(zone_of_phone).and_then(|name| name.parse().ok());
    by_phone.unwrap_or_else(|| account.zone())
}

/// The name of the zone of a phone number. None: its country has several zones, or is unknown.
pub fn zone_of_phone(phone: &str) -> Option<&'static str> {
    if let Some(national) = phone.strip_prefix("+55") {
        let area = national.get(..2)?;
        let found = BRAZILIAN_AREAS.iter().find(|(code, _)| *code == area);
        return Some(found.map_or(BRAZIL, |(_, zone)| zone));
    }
    let country = country_of_phone(phone)?;
    let mut entries = COUNTRY_ZONES.split(' ').filter_map(|entry| entry.split_once('='));
    entries.find_map(|(code, zone)| (code == country).then_some(zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> Zone {
        name.parse().unwrap()
    }

    #[test]
    fn every_zone_of_a_phone_is_in_the_database() {
        let by_country = COUNTRY_ZONES.split(' ').map(|entry| entry.split_once('=').unwrap().1);
        let by_area = BRAZILIAN_AREAS.iter().map(|(_, zone)| *zone).chain([BRAZIL]);
        for name in by_country.chain(by_area) {
            assert!(name.parse::<ZoneName>().is_ok(), "{name}");
        }
        let countries: Vec<&str> = COUNTRY_ZONES
            .split(' ')
            .map(|entry| entry.split_once('=').unwrap().0)
            .collect();
        assert!(countries.is_sorted() && countries.iter().all(|country| country.len() == 2));
    }

    #[test]
    fn contact_zone_is_its_own_then_by_phone_then_the_accounts() {
        let account: ZoneName = "Europe/Paris".parse().unwrap();
        let own: ZoneName = "Asia/Tokyo".parse().unwrap();
        assert_eq!(
            contact_zone(Some(&own), Some("+5511961234567"), &account),
            zone("Asia/Tokyo")
        );
        for (phone, expected) in [
            ("+5511961234567", "America/Sao_Paulo"),
            ("+5568961234567", "America/Rio_Branco"),
            ("+5569961234567", "America/Porto_Velho"),
            ("+5592961234567", "America/Manaus"),
            ("+5597961234567", "America/Manaus"),
            ("+5595961234567", "America/Boa_Vista"),
            ("+5565961234567", "America/Cuiaba"),
            ("+5566961234567", "America/Cuiaba"),
            ("+5567961234567", "America/Campo_Grande"),
            ("+5591961234567", "America/Sao_Paulo"),
            ("+393331234567", "Europe/Rome"),
            ("+447911123456", "Europe/London"),
            ("+919812345678", "Asia/Kolkata"),
            ("+18765550100", "America/Jamaica"),
            // Countries with several zones, and no country.
            ("+13125550100", "Europe/Paris"),
            ("+351912345678", "Europe/Paris"),
            ("+79161234567", "Europe/Paris"),
            ("+9991234567", "Europe/Paris"),
            ("+55", "Europe/Paris"),
        ] {
            assert_eq!(contact_zone(None, Some(phone), &account), zone(expected), "{phone}");
        }
        assert_eq!(contact_zone(None, None, &account), zone("Europe/Paris"));
    }
}

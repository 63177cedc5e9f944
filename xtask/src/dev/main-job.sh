AUTH="Authorization: Bearer $KEY"; JSON='Content-Type: application/json'
first_id() { grep -o '"id":"[^"]*"' | head -n 1 | cut -d '"' -f 4; }

# 1. bring the contacts in
curl -sS -X POST "$BASE/api/contacts/import" -H "$AUTH" -H 'Content-Type: text/csv' --data-binary @docs/examples/contacts.csv; echo

# 2. write a message template, hand it in, wait for its approval
TEMPLATE=$(curl -sS -X POST "$BASE/api/templates" -H "$AUTH" -H "$JSON" -d '{"name":"boas_vindas_'"$(date +%s)"'","category":"MARKETING","language":"pt_BR","template_type":"standard","body_text":"Oi {{1}}, use o cupom {{2}} esta semana na Loja Exemplo.","example_values":["Ana","BEMVINDO10"]}' | first_id)
curl -sS -X POST "$BASE/api/templates/$TEMPLATE/submit" -H "$AUTH" -H "$JSON" -d '{}'; echo
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do curl -sS "$BASE/api/templates/$TEMPLATE" -H "$AUTH" | grep -q '"meta_status":"approved"' && echo approved && break; sleep 1; done

# 3. send it to every contact
CAMPAIGN=$(curl -sS -X POST "$BASE/api/campaigns" -H "$AUTH" -H "$JSON" -d '{"name":"Boas-vindas","template_id":"'"$TEMPLATE"'","variables":{"2":"{attributes.cupom|BEMVINDO10}"}}' | first_id)
curl -sS -X POST "$BASE/api/campaigns/$CAMPAIGN/execute" -H "$AUTH"; echo

# 4. watch the statuses come back, and see the newest sends
for _ in 1 2 3; do curl -sS "$BASE/api/campaigns/$CAMPAIGN/stats" -H "$AUTH"; echo; sleep 2; done
curl -sS "$BASE/api/campaigns/$CAMPAIGN/sends?limit=2" -H "$AUTH"; echo

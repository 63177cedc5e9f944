-- Adds the tags to the contacts of a page, `part`. Each tag is looked up once.
-- $1 account, further parameters: those of the page.
WITH part AS MATERIALIZED ({part}),
labels AS MATERIALIZED (
  SELECT p.id AS contact_id, l.tag_id FROM part p CROSS JOIN LATERAL (
    SELECT l.tag_id FROM contact_tags l WHERE l.account_id = $1 AND l.contact_id = p.id {fence}) AS l
  WHERE NOT p.is_scan_end),
names AS MATERIALIZED (
  SELECT d.tag_id, t.name, t.color FROM (SELECT DISTINCT tag_id FROM labels) AS d CROSS JOIN LATERAL (
    SELECT t.name, t.color FROM tags t WHERE t.account_id = $1 AND t.id = d.tag_id {fence}) AS t)
SELECT {columns}, c.is_scan_end, coalesce(w.ids, ARRAY[]::uuid[]) AS tag_ids,
  coalesce(w.names, ARRAY[]::text[]) AS tag_names, coalesce(w.colors, ARRAY[]::text[]) AS tag_colors
FROM part c LEFT JOIN (
  SELECT l.contact_id, array_agg(l.tag_id ORDER BY lower(n.name), l.tag_id) AS ids,
    array_agg(n.name ORDER BY lower(n.name), l.tag_id) AS names,
    array_agg(n.color ORDER BY lower(n.name), l.tag_id) AS colors
  FROM labels l JOIN names n ON n.tag_id = l.tag_id GROUP BY l.contact_id) AS w ON w.contact_id = c.id
ORDER BY c.is_scan_end, c.id DESC

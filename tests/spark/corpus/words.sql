-- shrinks
message LIKE '%panic%';
-- shrinks
message LIKE '%kernel panic%';
-- shrinks
message LIKE '%ernel pani%';
-- shrinks
message LIKE '% panic: %';
-- shrinks
message LIKE '%panic: not syncing';
message LIKE 'ERROR%panic%';
message LIKE 'ERROR%';
-- shrinks
message LIKE '%kernel%' AND message LIKE '%panic%';
-- shrinks
message LIKE '%panic%' OR message LIKE '%id=7777 %';
message LIKE '%panic%' OR id = 5;
message NOT LIKE '%panic%' AND id < 60;
NOT (message LIKE '%panic%' AND message LIKE '%none%') AND id < 60;
(message LIKE '%panic%') IS NULL AND id < 3000;
(message LIKE '%panic%') <=> true;
COALESCE(message LIKE '%panic%', true) AND id < 300;
-- shrinks
message LIKE '%id=7777 %';
message LIKE '%id=77_7 %';
message LIKE '%100\% of%';
message LIKE '%100!% of%' ESCAPE '!';
message LIKE '%under\_score%';
message LIKE '%under_score%';
message LIKE '%back\\slash%';
message LIKE '';
message LIKE '%';
message LIKE '%%' AND id < 60;
message LIKE '_' AND id < 600;
message LIKE '%no such words%';
message LIKE CONCAT('%', 'panic', '%');
message LIKE CONCAT('%', word, '%') AND id < 600;
message LIKE ANY ('%panic%', '%none%');
message LIKE ALL ('%kernel%', '%panic%');
-- shrinks
message ILIKE '%KERNEL Panic%';
message ILIKE '%straße%';
message ILIKE '%STRASSE%';
message ILIKE '%kelvin%';
message ILIKE '%istanbul%';
message ILIKE '%ΑΣ%';
-- shrinks
lower(message) LIKE '%kernel panic%';
-- shrinks
upper(message) LIKE '%KERNEL PANIC%';
upper(message) LIKE '%STRASSE%';
lower(message) LIKE '%kelvin%';
lower(message) LIKE '%i%' AND id < 60;
lower(message) = 'error kernel panic: not syncing';
-- shrinks
message RLIKE 'kernel pan[ia]c';
-- shrinks
message RLIKE '^ERROR kernel +panic: not syncing$';
message RLIKE 'kernel|none';
message RLIKE '(kernel|none) panic';
message RLIKE 'id=777.';
message RLIKE 'x*panic?';
message RLIKE '(?i)KERNEL';
message RLIKE '\\bpanic\\b';
-- shrinks
contains(message, 'kernel panic');
contains(message, '100%');
contains(message, '');
contains(message, '日本語 の');
-- shrinks
endswith(message, 'panic: not syncing');
startswith(message, 'ERROR kernel');
startswith(message, 'straße und');
-- shrinks
message = 'ERROR kernel panic: not syncing';
-- shrinks
message IN ('ERROR kernel panic: not syncing', 'none');
message = 'kernel panic: not syncing';
message IN ('ERROR kernel panic: not syncing', '', NULL);
message <=> 'ERROR kernel panic: not syncing';
message <> 'ERROR kernel panic: not syncing' AND id < 60;
message = 'a\uFFFDb 7';
message = 'straße und Gasse 5';
lower(message) = 'straße und gasse 5';
message = CONCAT('straße und Gasse ', id);
-- shrinks
instr(message, 'kernel') > 0 AND message LIKE '%panic%';
message LIKE '%日本語%';
message LIKE '%本%';
message LIKE '%😀%';
message LIKE '%é%';
message LIKE '%e\u0301%';
message LIKE '%\uFFFD%';
message LIKE '%a\uFFFDb%';
contains(message, '\uFFFD');
message LIKE '%\0%';
message IS NULL AND id < 3000;
message LIKE '%panic%' AND message IS NULL;
length(message) = 0;
st.text LIKE '%needle 77%';
m['k'] LIKE '%needle 77%';

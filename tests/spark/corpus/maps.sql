m['color'] = 'color 77';
element_at(m, 'color') = 'color 77';
try_element_at(m, 'color') = 'color 77';
m.color = 'color 77';
m['color'] = 'first';
m['color'] = 'second';
element_at(m, 'color') = 'second';
m['color'] LIKE 'color 77%';
m['color'] LIKE '%77';
m['color'] IN ('color 1', 'color 2', 'none');
m['color'] IN ('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'color 3');
m['color'] IS NULL AND id < 30;
m['color'] IS NOT NULL AND id < 30;
m['color'] <=> 'color 78';
NOT (m['color'] <=> 'color 78') AND id < 30;
NOT (m['color'] < 'color 998');
NOT (m['color'] > 'color 1' OR n[1] > 5);
m['color'] = 'color 77' OR n[1] = 33;
m['color'] = 'color 77' OR id = 4711;
upper(m['color']) = 'COLOR 77' AND m['color'] < 'color 78';
m['Color'] = 'color 77';
m['it\'s \\'] = 'line\nbreak 7';
n[1] = 44;
n[1L] = 44;
n['1'] = 44;
n[1] > 990.5;
n[1] BETWEEN 7 AND 8;
n[-7] = 12;
n[2] = 12;
days[DATE'2024-02-29'] = 12.5;
days['2024-02-29'] = 12.5;
days[DATE'2024-02-29'] > 700;
isnan(days[DATE'2024-02-29']);
s.m[9000000000] = 41;
s.m[1] = 41;
map_contains_key(m, 'color') AND m['color'] = 'color 5';
COALESCE(m['color'], 'none') = 'none';
m['color'] = m['size'];
-- shrinks
m['color'] = 'color 77';
-- shrinks
element_at(m, 'color') = 'color 77';
-- shrinks
m.color = 'color 77';
-- shrinks
m['color'] = 'color 77' OR n[1] = 99999;
-- shrinks
m['it\'s \\'] = 'line\nbreak 7';
-- shrinks
m['color'] LIKE 'color 777%';
-- shrinks
n[1L] = 44;
-- shrinks
n[-7] = 12;
-- shrinks
days['2024-02-29'] = 12.5;
-- shrinks
s.m[9000000000] = 41;

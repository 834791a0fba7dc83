-- shrinks
array_contains(tags, 'tag 77');
-- shrinks
array_contains(tags, 'tag 77') AND array_contains(tags, 'tag 78');
array_contains(tags, 'tag 77') OR array_contains(nums, 77);
NOT array_contains(tags, 'tag 77') AND id < 60;
NOT (array_contains(tags, 'tag 77') OR array_contains(nums, 5)) AND id < 60;
array_contains(tags, 'Tag 77');
array_contains(tags, '');
array_contains(tags, 'ü');
array_contains(tags, CAST(NULL AS STRING));
array_contains(tags, 'tag 77') IS NULL AND id < 60;
array_contains(tags, 'tag 77') IS NOT NULL AND id < 60;
array_contains(tags, 'tag 77') = true;
array_contains(tags, 'tag 77') <=> false AND id < 60;
COALESCE(array_contains(tags, 'tag 77'), true) AND id < 60;
array_contains(tags, tags[0]) AND id < 60;
array_contains(array('tag 77', 'b'), tags[0]);
-- shrinks
arrays_overlap(tags, array('tag 77', 'tag 1078', 'none'));
-- shrinks
arrays_overlap(array('tag 77', 'tag 1078'), tags);
arrays_overlap(tags, array('tag 77', NULL));
arrays_overlap(tags, array('none', NULL)) AND id < 60;
NOT arrays_overlap(tags, array('tag 77', 'tag 1078')) AND id < 60;
NOT arrays_overlap(tags, array('tag 77', NULL)) AND id < 60;
arrays_overlap(tags, array()) AND id < 60;
arrays_overlap(tags, map_keys(m)) AND id < 60;
-- shrinks
exists(tags, x -> x = 'tag 77');
-- shrinks
exists(tags, x -> x IN ('tag 77', 'tag 78'));
exists(tags, x -> 'tag 77' = x);
exists(tags, x -> x IS NULL) AND id < 300;
exists(tags, x -> x LIKE 'tag 77%');
exists(tags, x -> x = 'tag 77' AND id < 3000);
exists(tags, x -> upper(x) = 'TAG 77');
exists(nums, x -> x > 990);
NOT exists(tags, x -> x = 'tag 77') AND id < 60;
forall(tags, x -> x = 'tag 77');
size(filter(tags, x -> x = 'tag 77')) > 0;
array_position(tags, 'tag 77') > 0;
tags[0] = 'tag 77';
element_at(tags, 1) = 'tag 77';
size(tags) = 0 AND id < 900;
0 = size(tags) AND id < 900;
cardinality(tags) = 0 AND id < 900;
NOT (size(tags) = 0) AND id < 60;
size(tags) > 0 AND id < 60;
size(tags) < 1 AND id < 900;
size(tags) = 2 AND id < 60;
tags IS NULL AND id < 900;
tags IS NOT NULL AND id < 60;
-- shrinks
array_contains(nums, 77);
array_contains(nums, 77L);
array_contains(nums, 77.0);
array_contains(nums, 3000000000);
array_contains(ds, 0.0D);
array_contains(ds, -0.0D);
arrays_overlap(ds, array(0.0D));
NOT arrays_overlap(ds, array(-0.0D, 3D)) AND id < 300;
array_contains(ds, DOUBLE('NaN'));
array_contains(ds, 12.5F);
array_contains(days, DATE'2024-02-29');
array_contains(decs, 12.5);
array_contains(decs, 12.555);
-- shrinks
array_contains(decs, 12.50BD);
array_contains(moments, TIMESTAMP'2024-01-01 01:00:00');
array_contains(moments, TIMESTAMP'2024-01-01 01:00:00+01:00');
array_contains(st.a, 77L);
array_contains(st.a, 77L) AND st IS NULL;
-- shrinks
map_contains_key(m, 'k 77');
NOT map_contains_key(m, 'k 77') AND id < 60;
array_contains(map_keys(m), 'k 77');
-- shrinks
array_contains(map_values(m), 77);
NOT array_contains(map_values(m), 77) AND id < 60;
arrays_overlap(map_values(m), array(77, 78));
map_contains_key(m, 'k 77') AND m['k 77'] = 77;
-- shrinks
m['k 77'] = 679;
-- shrinks
m['k 77'] IS NOT NULL;
-- shrinks
m['k 77'] <=> 679;
-- shrinks
m['k 77'] > 600 AND m['k 77'] < 800;
m['k 77'] <> 5 OR id < 9;
m['k 77'] IS NULL AND id < 60;
-- shrinks
element_at(m, 'k 77') IN (679, 5);
try_element_at(m, 'k 77') = 679;
COALESCE(m['k 77'], 5) = 5 AND id < 60;
m['none'] = 1;
m['none'] IS NULL AND id < 60;
m[CONCAT('k ', '77')] = 679;
-- shrinks
m['all'] = 3000;
m['none'] IS NOT NULL;
NOT m['k 77'] = 5 AND id < 3000;
size(m) = 0 AND id < 900;
m IS NULL AND id < 900;
array_contains(nested, array(1, 2));
exists(nested, x -> array_contains(x, 77));
array_contains(people.name, 'p 77');
exists(people, p -> p.name = 'p 77');

-- variants are unknown, and the rest prunes
-- shrinks
variant_get(v, '$.a', 'int') = 5 AND i = 37;
-- shrinks
variant_get(v, '$.a', 'int') = 5 AND i = 37 OR i = 74;
-- shrinks
v IS NOT NULL AND i = 37;
-- shrinks
v IS NULL AND i = 37;
-- shrinks
(v IS NULL AND i = 37) OR st.x = 5;
-- shrinks
variant_get(st.v, '$.a', 'int') IS NULL AND st.x = 7;
-- shrinks
st IS NOT NULL AND i = 37;

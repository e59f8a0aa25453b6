#!/usr/bin/env python3
"""Writes expressions/*.txt beside the handwritten ones: every built-in over pools of arguments, in all combinations up to a bound."""
import itertools
import pathlib

ROOM = pathlib.Path(__file__).parent
MOST = 60  # expressions a built-in


def text(value):
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'


TEXTS = [text(t) for t in ["", "a", "abc", "a b", "aXbX", "é漢字", "  x ", "a.b.c", "AbC", "aaa", "x\ny"]]
SHORT = [text(t) for t in ["", "a", "b", "X", ".", "é", "abc"]]
NUMBERS = ["0", "1", "-1", "2", "7", "1.5", "-2.5", "0.1", "100", "1e3", "12345678901234567890"]
SMALL = ["0", "1", "2", "-1", "5"]
ARRAYS = ["[]", "[1]", "[3, 1, 2]", '["a", "b"]', "[[1], {}]", "[1, 1.0, null]", "[true, false]"]
SETS = ["set()", "{1}", "{1, 2, 3}", '{"a", "b"}', "{null, true}", "{{1}, [2]}"]
OBJECTS = ["{}", '{"a": 1}', '{"a": {"b": [1, 2]}, "c": null}', '{1: "x"}', '{"b": 2, "a": {"d": 3}}']
ANY = ["null", "true", "false", "0", "1.5", '""', '"a"', "[]", "[1]", "set()", "{1}", "{}", '{"a": 1}']
VERSIONS = [text(t) for t in ["1.0.0", "1.0.1", "v1.0.0", "1.0.0-a", "1.0.0-a.1", "1.0.0-1", "1.0.0+x", "1.0", "10.2.3", "1.0.0-rc.10", "1.0.0-rc.9"]]
BLOCKS = [text(t) for t in ["10.0.0.0/8", "10.1.0.0/16", "192.168.1.0/24", "0.0.0.0/0", "::/0", "2001:db8::/32", "fe80::/10", "10.0.0.1/32", "x", "10.0.0.0/33"]]
ADDRESSES = BLOCKS + [text(t) for t in ["10.1.2.3", "::1", "2001:db8::5", "256.1.1.1", "1.2.3"]]
PATTERNS = [text(t) for t in ["a", "a*", "[a-c]+", "(a)(b)?", "^x", "", "b$", "(", "\\d+", "(?i)ABC", "a|b", "."]]
GLOBS = [text(t) for t in ["*", "**", "a*", "?", "*.b.*", "{a,b}*", "[a-c]bc", "[!a]*", "a\\*", "*.*", "{a,", "*é*"]]
LAYOUTS = [text(t) for t in ["2006-01-02", "2006-01-02T15:04:05Z07:00", "RFC1123", "Jan _2 15:04:05.000", "02/01/06 03:04PM", "Monday, January 2 2006", "002 2006", "ANSIC"]]
MOMENTS = ["0", "1577934245123456789", "-1", "1709164800000000000", "951782400000000000", '[1593576000000000000, "Europe/Berlin"]', '[1593576000000000000, "America/New_York"]',
           '[2000000000000000000, "Australia/Sydney"]', '[4000000000000000000, "Europe/Berlin"]', '[0, "Asia/Kolkata"]', '[1e18, "UTC"]', '[1, "No/Where"]', '[-1e18, "America/Sao_Paulo"]']
JSONS = [text(t) for t in ["{}", "[1,2]", "\"x\"", "1e2", "1.0", "{\"a\":[null,true]}", "{", "", "nul", "[1,]", "{\"a\":1,\"a\":2}", "\"\\u00e9\\ud83d\\ude00\"", " 1 "]]
YAMLS = [text(t) for t in ["a: 1", "- x\n- y", "a:\n  b: [1, 2.5, true]\n  c: {d: ~}", "'1'", "0x1F", "1e3", "yes", "key: |\n  a\n  b\n", "a: &x [1]\nb: *x", "a: 2020-01-02", "x: 'it''s'", "# c\n", "[", "a: b: c", "1_000", "\"a\\tb\"", ".5", "+12", "0o14", "014"]]
UNITS = [text(n + u) for n in ["1", "1.5", "-2", "0", "100", "1e2", "x", ""] for u in ["", "K", "Ki", "m", "M", "GB", "GiB", "T", "E", "b"]]
UUIDS = [text(t) for t in ["6ba7b810-9dad-11d1-80b4-00c04fd430c8", "00000000-0000-0000-0000-000000000000", "f47ac10b-58cc-4372-a567-0e02b2c3d479", "x", "6ba7b810-9dad-21d1-80b4-00c04fd430c8", "urn:uuid:f47ac10b-58cc-4372-c567-0e02b2c3d479", "F47AC10B58CC4372E5670E02B2C3D479"]]
BASES = [text(t) for t in ["", "YQ==", "YWI=", "YWJj", "YQ", "_-8=", "/+8=", "!", "YQ=", "YWJj\n", "Y Q==", "YQ==YQ=="]]
HEXES = [text(t) for t in ["", "00", "61ff", "6", "zz", "6G", "AbCd", "é"]]
QUERIES = [text(t) for t in ["", "a=1", "a=1&b=2&a=3", "a%20b", "a+b", "%zz", "x", "a=%", "=b", "a==b", "&&", "é=ü", "a/b?c"]]
GRAPHS = ["{}", '{"a": ["b"], "b": []}', '{"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}', '{"a": {"b"}, "b": {"a"}}', '{"a": ["x"]}', '{1: [2], 2: [1, 3], 3: []}']
NODES = ["[]", '["a"]', '{"a", "b"}', "[1]", '["z"]']
DOCUMENTS = ["{}", '{"a": 1}', '{"a": {"b": 1, "c": [1, 2, 3]}, "d": "x"}', '{"a": [{"b": 1}, {"b": 2}]}', '{"a/b": 1, "~": 2}', '{"s": {1, 2}}']
PATHS = ["[]", '["a"]', '["a/b"]', '["/a/c/1", "d"]', '[["a", 0, "b"]]', '{"a/0", "d"}', '["a~1b", "~0"]', '[["s", 1]]', '["x/y"]']
PATCHES = ["[]", '[{"op": "add", "path": "/z", "value": 9}]', '[{"op": "remove", "path": "/a"}]', '[{"op": "replace", "path": "/a", "value": [1]}]', '[{"op": "add", "path": "/a/0", "value": 0}]',
           '[{"op": "add", "path": "a/c/-", "value": 0}]', '[{"op": "move", "from": "/a", "path": "/q"}]', '[{"op": "copy", "from": "/a", "path": "/q"}]', '[{"op": "test", "path": "/a", "value": 1}]',
           '[{"op": "add", "path": "", "value": 5}]', '[{"op": "remove", "path": "/a/b"}]', '[{"op": "remove", "path": ["s", 1]}]', '[{"op": "add", "path": ["s", 7], "value": 7}]', '[{"op": "x", "path": "/a"}]']
SCHEMAS = ["{}", '{"type": "object"}', '{"type": "array"}', '{"required": ["a"]}', '{"properties": {"a": {"type": "integer"}}}', '{"additionalProperties": false}', '{"minProperties": 2}', '{"properties": {"a": {"minimum": 2}}}',
           '{"properties": {"a": {"enum": [1, "x"]}}}', '{"anyOf": [{"required": ["a"]}, {"required": ["s"]}]}', '{"not": {"required": ["a"]}}', '{"type": "x"}', '{"minLength": -1}', '{"maxItems": "a"}', '{"required": "a"}', '{"$ref": "#/nope"}',
           '{"oneOf": [{"type": "object"}, {"required": ["a"]}]}', '{"properties": {"d": {"pattern": "^y", "maxLength": 0}}}', '{"allOf": []}', '{"enum": 1}', '{"items": 1}', '{"multipleOf": 0}', '{"uniqueItems": 1}', '{"dependencies": {"a": ["d"]}}']
TOKENS = [text(t) for t in ["eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.c2ln", "a.b", "a.b.c", "eyJhbGciOiJIUzI1NiJ9.W10.c2ln", "eyJlbmMiOiJIUzI1NiJ9.eyJhIjoxfQ.c2ln",
                            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"]]
SECRETS = [text(t) for t in ["your-256-bit-secret", "k", ""]]

GROUPS = {
    "numbers": {"abs": [NUMBERS], "ceil": [NUMBERS], "floor": [NUMBERS], "round": [NUMBERS], "numbers.range": [SMALL, SMALL], "numbers.range_step": [SMALL, SMALL, ["1", "2", "0", "-1"]], "bits.and": [NUMBERS, SMALL], "bits.or": [NUMBERS, SMALL],
                "bits.xor": [NUMBERS, SMALL], "bits.negate": [NUMBERS], "bits.lsh": [NUMBERS, SMALL], "bits.rsh": [NUMBERS, SMALL], "format_int": [NUMBERS, ["2", "8", "10", "16", "3"]], "to_number": [ANY + ['"12"', '"1.5"', '"x"', '"0x1"', '"1e2"', '" 1"']],
                "plus": [NUMBERS, NUMBERS], "minus": [NUMBERS, NUMBERS], "mul": [NUMBERS, NUMBERS], "div": [NUMBERS, NUMBERS], "rem": [NUMBERS, SMALL]},
    "collections": {"count": [ARRAYS + SETS + OBJECTS + TEXTS], "sum": [ARRAYS + SETS], "product": [ARRAYS + SETS], "max": [ARRAYS + SETS], "min": [ARRAYS + SETS], "sort": [ARRAYS + SETS], "array.concat": [ARRAYS, ARRAYS], "array.slice": [ARRAYS, SMALL, SMALL],
                    "array.reverse": [ARRAYS], "array.flatten": [ARRAYS], "union": [["set()", "{{1}, {2}}", "{{1, 2}, set()}"]], "intersection": [["set()", "{{1}, {2}}", "{{1, 2}, {2}}"]], "all": [ARRAYS + SETS], "any": [ARRAYS + SETS],
                    "and": [SETS, SETS], "or": [SETS, SETS], "object.get": [OBJECTS, ['"a"', '"z"', '["a", "b"]', '["a", "b", 0]', "[]", "1"], ["null"]], "object.keys": [OBJECTS], "object.remove": [OBJECTS, ['["a"]', '{"a", "b"}', '{"c": 1}', "[]"]],
                    "object.filter": [OBJECTS, ['["a"]', '{"a", "b"}', '{"c": 1}', "[]"]], "object.union": [OBJECTS, OBJECTS], "object.union_n": [["[]", '[{"a": 1}, {"a": {"b": 2}}, {"a": {"c": 3}}]']],
                    "object.subset": [OBJECTS + ["{1, 2}", "[1, 2, 3]"], OBJECTS + ["{1}", "[2, 3]", "[1, 3]"]]},
    "types": {f: [ANY] for f in ["type_name", "is_array", "is_boolean", "is_null", "is_number", "is_object", "is_set", "is_string"]},
    "strings": {"lower": [TEXTS], "upper": [TEXTS], "trim_space": [TEXTS], "strings.reverse": [TEXTS], "contains": [TEXTS, SHORT], "startswith": [TEXTS, SHORT], "endswith": [TEXTS, SHORT], "indexof": [TEXTS, SHORT], "indexof_n": [TEXTS, SHORT],
                "split": [TEXTS, SHORT], "strings.split_n": [TEXTS, SHORT[:4], ["0", "2", "-1"]], "trim": [TEXTS, SHORT], "trim_left": [TEXTS, SHORT], "trim_right": [TEXTS, SHORT], "trim_prefix": [TEXTS, SHORT], "trim_suffix": [TEXTS, SHORT],
                "replace": [TEXTS, SHORT[:4], SHORT[1:3]], "substring": [TEXTS[:8], SMALL, SMALL], "concat": [SHORT, ARRAYS[:1] + ARRAYS[3:4] + ['{"b", "a"}']], "strings.count": [TEXTS, SHORT],
                "strings.any_prefix_match": [TEXTS, ['"a"', '["b", "a"]', '{"x"}', "[]"]], "strings.any_suffix_match": [TEXTS, ['"c"', '["b", "X"]', '{"x"}', "[]"]], "strings.replace_n": [['{"a": "1", "b": "2"}', "{}", '{"aa": "b", "a": "c"}'], TEXTS],
                "sprintf": [[text(t) for t in ["%v", "%s", "%d", "%q", "%5v|", "%-5s|", "%05d", "%x", "%t", "%.2f", "%%", "%", "%z", "a", "%v %v", "%08.3f", "%+d", "%e", "%b", "%o", "%c", "%T", "%[1]v %[1]d"]],
                            ["[]", "[1]", '["a"]', "[1.5]", "[true]", "[null]", '[{"a": [1]}]', "[{1}]", "[1, 2]"]]},
    "regex": {"regex.match": [PATTERNS, TEXTS], "regex.is_valid": [PATTERNS], "regex.split": [PATTERNS, TEXTS], "regex.find_n": [PATTERNS, TEXTS, ["-1", "1"]], "regex.find_all_string_submatch_n": [PATTERNS, TEXTS, ["-1", "2"]],
              "regex.replace": [TEXTS, PATTERNS, ['"-"', '"[$0]"', '"${1}x"', '"$1x$$"']], "regex.template_match": [['"a{.*}c"', '"{[a-z]+}"', '"a{b"', '"a}b"', '"x.y{.}"'], ['"abc"', '"xzyq"', '"x.yq"'], ['"{"'], ['"}"']],
              "regex.globs_match": [['"a*"', '"a+b"', '"[a-c]*"', '"."', '"abc"', '"[x"', '"a.c"', '".*"'], ['"a*"', '"b+"', '"[b-d]+"', '"abc"', '".b."', '"x"']]},
    "glob": {"glob.match": [GLOBS, ["[]", "null", '["/"]', '[".", ":"]'], TEXTS], "glob.quote_meta": [GLOBS + TEXTS]},
    "encoding": {"base64.decode": [BASES], "base64.is_valid": [BASES], "base64url.decode": [BASES], "base64.encode": [TEXTS], "base64url.encode": [TEXTS + ['"ÿ?>"']], "base64url.encode_no_pad": [TEXTS], "hex.encode": [TEXTS], "hex.decode": [HEXES],
                 "urlquery.encode": [TEXTS + QUERIES], "urlquery.decode": [QUERIES], "urlquery.decode_object": [QUERIES], "urlquery.encode_object": [['{}', '{"a": "1"}', '{"b": ["1", "2"], "a": {"x y"}}', '{"é": "&="}']]},
    "json": {"json.unmarshal": [JSONS], "json.is_valid": [JSONS], "json.marshal": [ANY + OBJECTS + ARRAYS + SETS + ['"<&>\\u2028"', "1e400", "100000000000000000000"]],
             "json.marshal_with_options": [OBJECTS + ARRAYS, ["{}", '{"pretty": true}', '{"indent": "  "}', '{"prefix": ">", "pretty": true}', '{"indent": "x", "pretty": false}', '{"nope": 1}']],
             "json.filter": [DOCUMENTS, PATHS], "json.remove": [DOCUMENTS, PATHS], "json.patch": [DOCUMENTS, PATCHES]},
    "schema": {"json.match_schema": [DOCUMENTS[:4], SCHEMAS], "json.verify_schema": [SCHEMAS]},
    "yaml": {"yaml.unmarshal": [YAMLS], "yaml.is_valid": [YAMLS], "yaml.marshal": [ANY + OBJECTS + ARRAYS + TEXTS + [text(t) for t in ["true", "1", "- x", "a: b", "x #y", "null", "2020-01-01", "no", "'", "*a", "0x1", "1e3", "a\\b", "@x", "\tx", "multi\nline\n", "~", "[a", "x:", "%d", ".5", "a\n\nb"]]]},
    "names": {"units.parse": [UNITS], "units.parse_bytes": [UNITS], "uuid.parse": [UUIDS], "semver.compare": [VERSIONS, VERSIONS], "semver.is_valid": [VERSIONS + ANY]},
    "graph": {"graph.reachable": [GRAPHS, NODES], "graph.reachable_paths": [GRAPHS, NODES]},
    "net": {"net.cidr_contains": [BLOCKS, ADDRESSES], "net.cidr_intersects": [BLOCKS, BLOCKS], "net.cidr_is_valid": [ADDRESSES], "net.cidr_expand": [['"10.0.0.0/30"', '"10.0.0.9/29"', '"::1/127"', '"1.2.3.4/32"', '"x"']],
            "net.cidr_contains_matches": [['"10.0.0.0/8"', '["10.0.0.0/8", "::/0"]', '{"a": "10.0.0.0/8"}', '{["10.0.0.0/8", 1]}'], ['"10.1.1.1"', '["10.1.1.1", "::1"]', '{"b": ["10.2.0.0/16", "z"]}', '{"11.1.1.1"}']],
            "net.cidr_merge": [["[]", '["10.0.0.0/24", "10.0.1.0/24"]', '{"10.0.0.0/25", "10.0.0.128/25", "10.0.0.0/8"}', '["10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24"]', '["2001:db8::/33", "2001:db8:8000::/33"]', '["x"]', '["192.0.2.112/30", "192.0.2.116/31", "192.0.2.118/31"]']]},
    "time": {"time.parse_rfc3339_ns": [[text(t) for t in ["2020-01-02T03:04:05Z", "2020-01-02T03:04:05.5+01:30", "2020-02-30T00:00:00Z", "x", "2020-01-02", "1969-12-31T23:59:59Z", "2020-01-02T24:00:00Z", "2300-01-01T00:00:00Z", "2020-01-02t03:04:05z"]]],
             "time.parse_ns": [LAYOUTS, [text(t) for t in ["2020-02-29", "2020-02-29T01:02:03+02:00", "Mon, 02 Jan 2006 15:04:05 GMT", "Feb  9 01:02:03.456", "29/02/20 01:02AM", "Saturday, February 29 2020", "060 2020", "Sat Feb 29 01:02:03 2020"]]],
             "time.parse_duration_ns": [[text(t) for t in ["1s", "1h30m", "-1.5h", "1d2h", "1w", "1y", "", "1", "x", "1.5.2s", "100ms", "1us", "5ns", "1h-2m", "0", "+3s", ".5m", "1.s", "292y", "293y"]]],
             "time.date": [MOMENTS], "time.clock": [MOMENTS], "time.weekday": [MOMENTS], "time.format": [MOMENTS + [f'[{ns}, {text(zone)}, {layout}]' for ns in ["1577934245123456789", "1709164800000000000"] for zone in ["UTC", "Asia/Tokyo"] for layout in LAYOUTS]],
             "time.add_date": [["0", "1709164800000000000", "1580428800000000000"], ["0", "1", "-4"], ["0", "1", "-13"], ["0", "40", "-1"]], "time.diff": [MOMENTS[:8], MOMENTS[:8]]},
    "crypto": {**{f"crypto.{h}": [TEXTS] for h in ["md5", "sha1", "sha256"]}, **{f"crypto.hmac.{h}": [TEXTS, SHORT] for h in ["md5", "sha1", "sha256", "sha512", "equal"]},
               "io.jwt.decode": [TOKENS], "io.jwt.verify_hs256": [TOKENS, SECRETS], "io.jwt.verify_hs384": [TOKENS, SECRETS[:1]], "io.jwt.verify_hs512": [TOKENS, SECRETS[:1]], "io.jwt.verify_rs256": [TOKENS, ['"k"', '"{}"']],
               "io.jwt.decode_verify": [TOKENS, ['{"secret": "your-256-bit-secret"}', "{}", '{"secret": "k"}', '{"secret": "your-256-bit-secret", "alg": "HS384"}', '{"secret": "your-256-bit-secret", "alg": "HS256", "iss": "x"}', '{"cert": "x"}', '{"secret": 1}', '{"nope": 1}']]},
}


def main():
    for group, functions in GROUPS.items():
        lines = []
        for name, pools in functions.items():
            every = list(itertools.product(*pools))
            step = max(1, len(every) // MOST)
            for i in range(0, len(every), step):
                lines.append(f"{name}({', '.join(every[i])})")
        (ROOM / "expressions" / f"{group}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

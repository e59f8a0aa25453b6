# Patterns of request paths and of executables, as a policy means them: `*` stays within a segment, `**` is a segment of its own and stands
# for any number of segments, at the end for at least one. Rules reach it with `import data.openshell.path`. Undefined: no match.
package openshell.path

import rego.v1

match(pattern, _) if pattern == "**"

# Without `**` the segments are compared one by one.
match(pattern, path) if {
	wanted := split(pattern, "/")
	not "**" in wanted
	given := split(path, "/")
	count(wanted) == count(given)
	every n, one in wanted {
		_fits(one, given[n])
	}
}

# With it: [used of the pattern, used of the path] are places, and both have to be used up.
match(pattern, path) if {
	pattern != "**"
	wanted := split(pattern, "/")
	"**" in wanted
	given := split(path, "/")
	finish := [count(wanted), count(given)]
	ways := {[n, m]: onward |
		some n in numbers.range(0, count(wanted) - 1)
		some m in numbers.range(0, count(given))
		onward := _onward(wanted, given, n, m)
	}
	finish in graph.reachable(object.union(ways, {finish: set()}), {[0, 0]})
}

_onward(wanted, given, n, m) := {[n + 1, m + 1]} if {
	wanted[n] != "**"
	_fits(wanted[n], given[m])
}

_onward(wanted, given, n, m) := {[n + 1, m], [n, m + 1]} if {
	wanted[n] == "**"
	n + 1 < count(wanted)
	m < count(given)
}

_onward(wanted, given, n, m) := {[n + 1, m]} if {
	wanted[n] == "**"
	n + 1 < count(wanted)
	m == count(given)
}

_onward(wanted, given, n, m) := {[n, m + 1], [n + 1, m + 1]} if {
	wanted[n] == "**"
	n + 1 == count(wanted)
	m < count(given)
}

# An empty segment is only its own pattern.
_fits(pattern, segment) if {
	pattern == ""
	segment == ""
}

_fits(pattern, segment) if {
	segment != ""
	glob.match(regex.replace(pattern, `\*+`, "*"), ["/"], segment)
}

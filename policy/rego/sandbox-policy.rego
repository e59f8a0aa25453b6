# The rules by which a sandbox is decided, for an engine that reads Rego. The compiled matcher decides by the same ones; a test compares
# them. `data` and `input` are the documents of policy/evaluator_data.hpp and policy/evaluator_input.hpp. Nothing here but the language and
# its pure functions: the two files run under any Rego v1 engine.
package openshell.sandbox

import data.openshell.path
import rego.v1

# --- what a policy says besides the network

filesystem_policy := data.filesystem_policy

landlock_policy := data.landlock

process_policy := data.process

default network_middlewares := {}

network_middlewares := data.network_middlewares

# --- who may connect

# Only an endpoint that names one of these itself admits it: they are the machine that the sandbox runs on.
_host_aliases := {"host.openshell.internal", "host.docker.internal", "host.containers.internal"}

_is_alias(host) if lower(host) in _host_aliases

_is_address(host) if contains(host, ":")

_is_address(host) if regex.match(`^[0-9.]+$`, host)

_is_pattern(host) if contains(host, "*")

_host_admitted(endpoint, host) if {
	endpoint.host != ""
	not _is_pattern(endpoint.host)
	lower(endpoint.host) == lower(host)
}

_host_admitted(endpoint, host) if {
	_is_pattern(endpoint.host)
	not _is_alias(host)
	not _is_address(host)
	glob.match(lower(endpoint.host), ["."], lower(host))
}

_host_admitted(endpoint, host) if {
	endpoint.host == ""
	count(object.get(endpoint, "allowed_ips", [])) > 0
	_is_address(host)
}

_endpoint_admitted(endpoint) if {
	input.network.port in endpoint.ports
	_host_admitted(endpoint, input.network.host)
}

_programs := {program |
	some program in array.concat([input.exec.path], input.exec.ancestors)
	program != ""
}

_binary_admitted(_) if not data.runtime.require_binary_identity

_binary_admitted(rule) if {
	some binary in rule.binaries
	some program in _programs
	_is_program(binary.path, program)
}

_is_program(pattern, program) if {
	not contains(pattern, "*")
	pattern == program
}

_is_program(pattern, program) if {
	contains(pattern, "*")
	path.match(pattern, program)
}

_matching_policies contains key if {
	some key, rule in data.network_policies
	some endpoint in rule.endpoints
	_endpoint_admitted(endpoint)
	_binary_admitted(rule)
}

default allow_network := false

allow_network if count(_matching_policies) > 0

default network_action := "deny"

network_action := "allow" if allow_network

matched_network_policy := min(_matching_policies) if allow_network

# --- the endpoints of a connection, in the order of deciding

# Sets are visited in ascending order, so larger ranks come first by their negatives.
_admitting contains [0 - endpoint._conn_rank, key, index, endpoint] if {
	some key in _matching_policies
	some index, endpoint in data.network_policies[key].endpoints
	_endpoint_admitted(endpoint)
}

# Says how traffic is handled; a plain endpoint only grants access.
_handles(endpoint) if object.get(endpoint, "protocol", "") != ""

_handles(endpoint) if count(object.get(endpoint, "allowed_ips", [])) > 0

_handles(endpoint) if endpoint.tls

_handles(endpoint) if endpoint.credential_binding

_matching_endpoint_configs := [one[3] | some one in _admitting; _handles(one[3])]

matched_endpoint_config := _matching_endpoint_configs[0]

_matching_endpoint_records := [{"policy_name": one[1], "endpoint_index": one[2], "endpoint": one[3]} | some one in _admitting]

endpoint_credential_guards := [one[3] | some one in _admitting]

# One rule has to have both the program and the name; what an advisor proposed does not count.
exact_declared_endpoint_host if {
	some one in _admitting
	one[3].host != ""
	not _is_pattern(one[3].host)
	not object.get(one[3], "advisor_proposed", false)
}

default _exact_host := false

_exact_host if exact_declared_endpoint_host

policy_dns_eligible_endpoint_records := [{"policy_name": key, "endpoint_index": index, "endpoint": endpoint} |
	some key, rule in data.network_policies
	some index, endpoint in rule.endpoints
	endpoint.host != ""
	not _is_address(endpoint.host)
	count(endpoint.ports) > 0
	every port in endpoint.ports {
		is_number(port)
		port >= 1
		port <= 65535
	}
]

# --- why not

deny_reason := "missing input.network" if not input.network

deny_reason := "missing input.exec" if {
	input.network
	not input.exec
}

deny_reason := "network connections not allowed by policy" if {
	_complete
	not allow_network
	count(data.network_policies) == 0
}

deny_reason := sprintf("endpoint %s:%d is not allowed by any policy", [input.network.host, input.network.port]) if {
	_complete
	not allow_network
	count(data.network_policies) > 0
	count(_refusing_policies) == 0
}

deny_reason := concat("; ", [_binary_refusal(key) | some key in _refusing_policies]) if {
	_complete
	not allow_network
	count(_refusing_policies) > 0
}

_complete if {
	input.network
	input.exec
}

_refusing_policies contains key if {
	some key, rule in data.network_policies
	some endpoint in rule.endpoints
	_endpoint_admitted(endpoint)
	not _binary_admitted(rule)
}

# The only place that reads cmdline_paths.
_binary_refusal(key) := sprintf(
	"binary '%s' not allowed in policy '%s' (ancestors: [%s], cmdline: [%s]). SYMLINK HINT: the path above is the executable as the kernel resolved it; a rule has to name that path, 'readlink -f' shows it",
	[input.exec.path, key, concat(" -> ", input.exec.ancestors), concat(", ", input.exec.cmdline_paths)],
)

egress_authorization := {
	"action": "allow",
	"deny_reason": "",
	"matched_policy": matched_network_policy,
	"endpoint_configs": _matching_endpoint_configs,
	"matched_endpoints": _matching_endpoint_records,
	"exact_declared_endpoint_host": _exact_host,
} if allow_network

egress_authorization := {
	"action": "deny",
	"deny_reason": deny_reason,
	"matched_policy": "",
	"endpoint_configs": [],
	"matched_endpoints": [],
	"exact_declared_endpoint_host": false,
} if not allow_network

# --- the endpoints of a request

_inspected_protocols := {"rest", "websocket", "graphql", "json-rpc", "mcp"}

_protocol(endpoint) := object.get(endpoint, "protocol", "")

_inspects(endpoint) if {
	_protocol(endpoint) in _inspected_protocols
	not endpoint.tls == "skip"
}

_is_raw(endpoint) if endpoint.tls == "skip"

_is_raw(endpoint) if _protocol(endpoint) in {"tcp", "sql"}

_raw if _is_raw(matched_endpoint_config)

_any_inspects if {
	some endpoint in _matching_endpoint_configs
	_inspects(endpoint)
}

_covers(endpoint) if _path_fits(object.get(endpoint, "path", ""))

_path_fits(pattern) if pattern in {"", "**", "/**"}

_path_fits(pattern) if path.match(pattern, input.request.path)

_covering contains [0 - one[3]._rank, one[1], one[2], one[3]] if {
	some one in _admitting
	_handles(one[3])
	_covers(one[3])
}

_deciding := [one[3] | some one in _covering][0]

# --- the answer to a request

default allow_request := false

# Nothing of the connection is inspected, or this path belongs to an endpoint that only passes through.
allow_request if {
	allow_network
	not _raw
	not _any_inspects
}

allow_request if {
	not _raw
	_any_inspects
	_deciding
	not _inspects(_deciding)
}

allow_request if {
	not _raw
	_inspects(_deciding)
	not _lacks_content
	not deny_request
	some one in _covering
	_protocol(one[3]) == _protocol(_deciding)
	_inspects(one[3])
	_allowed_by(one[3])
}

default deny_request := false

deny_request if {
	some one in _covering
	_protocol(one[3]) in _inspected_protocols
	_denied_by(one[3])
}

# What an endpoint can not be judged without.
_lacks_content if {
	_protocol(_deciding) == "graphql"
	not is_object(input.request.graphql)
}

_lacks_content if {
	_is_rpc(_deciding)
	not is_object(input.request.jsonrpc)
}

_lacks_content if {
	_protocol(_deciding) == "websocket"
	input.request.method == "WEBSOCKET_TEXT"
	_has_operation_rules(_deciding)
	not is_object(input.request.graphql)
}

_has_operation_rules(endpoint) if {
	some rule in endpoint.rules
	_about_operations(rule.allow)
}

_has_operation_rules(endpoint) if {
	some rule in endpoint.deny_rules
	_about_operations(rule)
}

_has_operation_rules(endpoint) if not object.get(endpoint, "persisted_queries", "") in {"", "deny"}

_has_operation_rules(endpoint) if count(object.get(endpoint, "graphql_persisted_queries", {})) > 0

_about_operations(rule) if {
	some part in ["operation_type", "operation_name"]
	object.get(rule, part, "") != ""
}

_about_operations(rule) if count(object.get(rule, "fields", [])) > 0

# --- plain requests

_is_rpc(endpoint) if _protocol(endpoint) in {"json-rpc", "mcp"}

_method_fits(wanted) if wanted == "*"

_method_fits(wanted) if {
	wanted != ""
	upper(wanted) == upper(input.request.method)
}

_method_fits(wanted) if {
	upper(wanted) == "GET"
	upper(input.request.method) == "HEAD"
}

_value_fits(matcher, value) if glob.match(matcher.glob, [], value)

_value_fits(matcher, value) if {
	some pattern in matcher.any
	glob.match(pattern, [], value)
}

_given(name) := object.get(object.get(input.request, "query_params", {}), name, [])

_query_allowed(rule) if {
	every name, matcher in object.get(rule, "query", {}) {
		count(_given(name)) > 0
		every value in _given(name) {
			_value_fits(matcher, value)
		}
	}
}

_query_denied(rule) if {
	every name, matcher in object.get(rule, "query", {}) {
		some value in _given(name)
		_value_fits(matcher, value)
	}
}

_allowed_by(endpoint) if {
	not _is_rpc(endpoint)
	some rule in endpoint.rules
	_method_fits(rule.allow.method)
	_path_fits(rule.allow.path)
	_query_allowed(rule.allow)
}

_allowed_by(endpoint) if {
	some rule in endpoint.rules
	_command_fits(rule.allow.command)
}

_denied_by(endpoint) if {
	not _is_rpc(endpoint)
	some rule in endpoint.deny_rules
	some part in ["method", "path", "query"]
	rule[part]
	_denied_method(rule)
	_path_fits(object.get(rule, "path", ""))
	_query_denied(rule)
}

_denied_by(endpoint) if {
	some rule in endpoint.deny_rules
	_command_fits(object.get(rule, "command", ""))
}

_denied_method(rule) if not rule.method

_denied_method(rule) if _method_fits(rule.method)

# No caller gives a command today.
_command_fits(wanted) if {
	wanted == "*"
	input.request.command
}

_command_fits(wanted) if {
	wanted != ""
	lower(wanted) == lower(input.request.command)
}

# --- JSON-RPC and MCP

_call := object.get(input.request, "jsonrpc", null)

_call_faulty if {
	is_string(_call.error)
	_call.error != ""
}

_call_method := _call.method if {
	is_string(_call.method)
	_call.method != ""
}

_has_response if _call.has_response == true

_allowed_by(endpoint) if {
	_is_rpc(endpoint)
	input.request.method == "POST"
	not _has_response
	not _call_faulty
	some rule in endpoint.rules
	_call_allowed(endpoint, rule.allow.method)
	_params_fit(rule.allow)
}

_call_allowed(endpoint, wanted) if {
	endpoint.protocol == "json-rpc"
	wanted in {"*", _call_method}
}

_call_allowed(endpoint, wanted) if {
	endpoint.protocol == "mcp"
	_call.mcp_method_classification == "available"
	glob.match(wanted, [], _call_method)
}

# What no revision of the protocol knows is allowed by its exact name only.
_call_allowed(endpoint, wanted) if {
	endpoint.protocol == "mcp"
	_call.mcp_method_classification == "extension"
	wanted == _call_method
}

_params_fit(rule) if {
	every name, matcher in object.get(rule, "params", {}) {
		is_string(_call.params[name])
		_value_fits(matcher, _call.params[name])
	}
}

# The profile of all known methods. Tools are named by rules as soon as one rule names any.
_allowed_by(endpoint) if {
	endpoint.protocol == "mcp"
	endpoint.mcp_allow_all_known_mcp_methods == true
	input.request.method == "POST"
	not _has_response
	not _call_faulty
	_call.mcp_method_classification == "available"
	_call_method
	not _tool_call_by_rule(endpoint)
}

_tool_call_by_rule(endpoint) if {
	_call_method == "tools/call"
	some rule in endpoint.rules
	rule.allow.params.name
}

_allowed_by(endpoint) if {
	endpoint.protocol == "mcp"
	input.request.method == "POST"
	_has_response
	not _call_faulty
}

# The stream by which the server speaks.
_allowed_by(endpoint) if {
	endpoint.protocol == "mcp"
	input.request.method == "GET"
	_call.receive_stream == true
	not _has_response
	not _call_faulty
	is_null(_call.method)
}

_denied_by(endpoint) if {
	_is_rpc(endpoint)
	input.request.method == "POST"
	some rule in endpoint.deny_rules
	_call_denied(endpoint, rule.method)
	_params_fit(rule)
}

_call_denied(endpoint, wanted) if {
	endpoint.protocol == "json-rpc"
	wanted in {"*", _call_method}
}

_call_denied(endpoint, wanted) if {
	endpoint.protocol == "mcp"
	glob.match(wanted, [], _call_method)
}

_denied_by(endpoint) if {
	endpoint.protocol == "json-rpc"
	_inspects(endpoint)
	input.request.method == "POST"
	_has_response
}

# --- GraphQL

_operations := object.get(object.get(input.request, "graphql", {}), "operations", []) if is_object(input.request.graphql)

_graphql_error := object.get(input.request.graphql, "error", "") if is_object(input.request.graphql)

_by_registry(operation) if {
	operation.persisted_query == true
	object.get(operation, "operation_type", "") == ""
}

_registry_key(operation) := operation.persisted_query_hash if object.get(operation, "persisted_query_hash", "") != ""

_registry_key(operation) := object.get(operation, "persisted_query_id", "") if object.get(operation, "persisted_query_hash", "") == ""

# The operation as it is judged; undefined: it is not registered.
_effective(_, operation) := operation if not _by_registry(operation)

_effective(endpoint, operation) := endpoint.graphql_persisted_queries[_registry_key(operation)] if {
	_by_registry(operation)
	endpoint.persisted_queries == "allow_registered"
}

_type_fits(wanted, _) if wanted == "*"

_type_fits(wanted, operation) if {
	wanted != ""
	lower(wanted) == lower(object.get(operation, "operation_type", ""))
}

_name_fits(wanted, _) if wanted == ""

_name_fits(wanted, operation) if {
	wanted != ""
	glob.match(wanted, [], object.get(operation, "operation_name", ""))
}

_field_listed(patterns, field) if {
	some pattern in patterns
	glob.match(pattern, [], field)
}

_fields_allowed(patterns, _) if count(patterns) == 0

_fields_allowed(patterns, operation) if {
	fields := object.get(operation, "fields", [])
	count(fields) > 0
	every field in fields {
		_field_listed(patterns, field)
	}
}

_fields_denied(patterns, _) if count(patterns) == 0

_fields_denied(patterns, operation) if {
	some field in operation.fields
	_field_listed(patterns, field)
}

_operation_allowed(endpoint, operation) if {
	some rule in endpoint.rules
	_type_fits(rule.allow.operation_type, operation)
	_name_fits(rule.allow.operation_name, operation)
	_fields_allowed(object.get(rule.allow, "fields", []), operation)
}

_graphql_allowed(endpoint) if {
	count(_operations) > 0
	_graphql_error == ""
	every operation in _operations {
		_operation_allowed(endpoint, _effective(endpoint, operation))
	}
}

_allowed_by(endpoint) if {
	_protocol(endpoint) in {"graphql", "websocket"}
	_graphql_allowed(endpoint)
}

_denied_by(endpoint) if {
	some operation in _operations
	judged := _effective(endpoint, operation)
	some rule in endpoint.deny_rules
	_type_fits(object.get(rule, "operation_type", ""), judged)
	_name_fits(object.get(rule, "operation_name", ""), judged)
	_fields_denied(object.get(rule, "fields", []), judged)
}

# A message that was read as GraphQL is judged by its operations alone.
_denied_by(endpoint) if {
	_protocol(endpoint) in {"graphql", "websocket"}
	_inspects(endpoint)
	is_object(input.request.graphql)
	not _graphql_allowed(endpoint)
}

# --- what a refused request is told, the first that applies

request_deny_reason := sprintf("GraphQL request rejected: %s", [_graphql_error]) if {
	_graphql_error != ""
} else := "GraphQL persisted query is not registered" if {
	some operation in _operations
	not _effective(_deciding, operation)
} else := "GraphQL operation blocked by endpoint policy" if {
	count(_operations) > 0
	deny_request
} else := "GraphQL operation not permitted by policy" if {
	count(_operations) > 0
} else := "JSON-RPC response frames are not permitted from client to server" if {
	_has_response
	_protocol(_deciding) == "json-rpc"
} else := "MCP method or tool blocked by a deny rule; review deny_rules of the endpoint" if {
	_read_mcp_call
	deny_request
} else := "MCP extension method has no exact allow rule; review rules of the endpoint, which have to name it exactly" if {
	_read_mcp_call
	_call.mcp_method_classification == "extension"
} else := "MCP tool call has no matching allow rule; review tool in the rules of the endpoint" if {
	_read_mcp_call
	is_string(_call.tool)
} else := "MCP core method not permitted by policy; review rules of the endpoint" if {
	_read_mcp_call
} else := sprintf("%s %s blocked by deny rule", [input.request.method, input.request.path]) if {
	deny_request
} else := sprintf("%s %s not permitted by policy", [input.request.method, input.request.path])

_read_mcp_call if {
	_protocol(_deciding) == "mcp"
	input.request.method == "POST"
	not _has_response
	not _call_faulty
	_call.mcp_method_classification
}

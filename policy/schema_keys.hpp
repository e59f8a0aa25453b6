// The keys of an authored policy, mapping by mapping, in the order in which suggestions prefer them. Internal to the parser.
#pragma once

#include <array>
#include <string_view>

namespace openshell::policy::keys {

inline constexpr std::array<std::string_view, 6> kTop{"version", "filesystem_policy", "landlock",
                                                      "process", "network_policies",  "network_middlewares"};
inline constexpr std::array<std::string_view, 3> kFilesystem{"include_workdir", "read_only", "read_write"};
inline constexpr std::array<std::string_view, 1> kLandlock{"compatibility"};
inline constexpr std::array<std::string_view, 2> kProcess{"run_as_user", "run_as_group"};
inline constexpr std::array<std::string_view, 3> kRule{"name", "endpoints", "binaries"};
inline constexpr std::array<std::string_view, 1> kBinary{"path"};
inline constexpr std::array<std::string_view, 24> kEndpoint{"host",
                                                            "path",
                                                            "port",
                                                            "ports",
                                                            "protocol",
                                                            "tls",
                                                            "enforcement",
                                                            "access",
                                                            "rules",
                                                            "allowed_ips",
                                                            "deny_rules",
                                                            "allow_encoded_slash",
                                                            "websocket_credential_rewrite",
                                                            "request_body_credential_rewrite",
                                                            "allow_uninspected_credentials",
                                                            "persisted_queries",
                                                            "graphql_persisted_queries",
                                                            "graphql_max_body_bytes",
                                                            "credential_signing",
                                                            "signing_service",
                                                            "signing_region",
                                                            "credential_binding",
                                                            "json_rpc",
                                                            "mcp"};
inline constexpr std::array<std::string_view, 1> kAllowWrapper{"allow"};
inline constexpr std::array<std::string_view, 9> kL7{"method",         "path",   "command", "query", "operation_type",
                                                     "operation_name", "fields", "tool",    "params"};
inline constexpr std::array<std::string_view, 1> kMatcher{"any"};
inline constexpr std::array<std::string_view, 3> kOperation{"operation_type", "operation_name", "fields"};
inline constexpr std::array<std::string_view, 1> kBinding{"provider"};
inline constexpr std::array<std::string_view, 1> kJsonRpc{"max_body_bytes"};
inline constexpr std::array<std::string_view, 4> kMcp{"versions", "max_body_bytes", "strict_tool_names", "allow_all_known_mcp_methods"};
inline constexpr std::array<std::string_view, 6> kMiddleware{"name", "middleware", "order", "config", "on_error", "endpoints"};
inline constexpr std::array<std::string_view, 2> kSelector{"include", "exclude"};

}  // namespace openshell::policy::keys

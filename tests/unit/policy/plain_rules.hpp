// The rules of decision written down a second time, as plainly as they can be: no tables, no automata, every rule looked at for every
// question. What the compiled matcher is compared with.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/request_content.hpp"
#include "sandbox.pb.h"

namespace openshell::policy::plain {

struct Question {
  std::string host;
  int port = 443;
  std::string binary;
  std::vector<std::string> ancestors;
  std::string method;
  std::string path;
  std::vector<std::pair<std::string, std::string>> query;
  const GraphqlContent* graphql = nullptr;
  const JsonRpcContent* jsonrpc = nullptr;
};

struct Answer {
  bool allow_network = false;
  std::string matched;             ///< smallest key of the matching rules
  std::string connection_decides;  ///< `key#index`, empty: none
  std::string request_decides;
  bool allow_request = false;
  bool exact_host = false;
};

Answer answer(const sandbox::v1::SandboxPolicy& policy, const Question& question);

/// Matching by trying: segments for paths and binaries, labels for hosts, dots for names.
bool path_matches(std::string_view pattern, std::string_view path);
bool host_matches(std::string_view pattern, std::string_view host);
bool name_matches(std::string_view pattern, std::string_view name);

}  // namespace openshell::policy::plain

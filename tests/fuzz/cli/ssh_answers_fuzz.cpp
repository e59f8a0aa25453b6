// What a hostile sandbox or a broken gateway answers: never a path outside the workspace, never a field that a shell would read.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "cli/ssh/config_file.hpp"
#include "cli/ssh/download_plan.hpp"
#include "cli/ssh/forward_records.hpp"
#include "cli/ssh/known_host.hpp"
#include "cli/ssh/session.hpp"
#include "openshell.pb.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto cut = text.find('\0');
  const auto left = text.substr(0, cut), right = cut == std::string::npos ? std::string{} : text.substr(cut + 1);
  if (auto source = openshell::cli::check_source(left, right, 0); source.ok()) {
    const auto root = right.substr(0, right.find('\n'));
    if (*source != root && !source->starts_with(root + "/")) std::abort();
    if (source->find("/../") != std::string::npos) std::abort();
  }
  openshell::v1::CreateSshSessionResponse response;
  if (response.ParseFromString(text) && openshell::cli::check_session(response).ok()) {
    for (const auto& field : {response.token(), response.sandbox_id(), response.gateway_host(), response.host_key_fingerprint()}) {
      if (field.find_first_of(" '\"\\;$`&|<>\n") != std::string::npos) std::abort();
    }
    (void)openshell::cli::tunnel_url(response, left);
  }
  (void)openshell::cli::known_host_line(left, "h", "t", right);
  (void)openshell::cli::parse_forward_spec(left);
  const auto once = openshell::cli::with_include(left, "/u/ssh_config");
  if (openshell::cli::with_include(once, "/u/ssh_config") != once) std::abort();
  return 0;
}

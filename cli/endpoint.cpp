#include "cli/endpoint.hpp"

#include <absl/strings/str_cat.h>

#include <algorithm>

namespace openshell::cli {

std::string Endpoint::authority() const { return absl::StrCat(bracketed(host), ":", port); }
std::string Endpoint::origin() const { return absl::StrCat(scheme, "://", authority()); }

Endpoint split_endpoint(std::string_view url) {
  Endpoint out;
  if (const auto end = url.find("://"); end != std::string_view::npos) {
    out.scheme = std::string{url.substr(0, end)};
    url.remove_prefix(end + 3);
  }
  const auto slash = std::min(url.find('/'), url.size());
  out.path = std::string{url.substr(slash)};
  url = url.substr(0, slash);
  const auto colon = url.rfind(':'), bracket = url.rfind(']');
  out.names_port = colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  out.port = out.names_port ? std::string{url.substr(colon + 1)} : std::string{out.scheme == "https" ? "443" : "80"};
  out.host = without_brackets(out.names_port ? url.substr(0, colon) : url);
  return out;
}

std::string without_brackets(std::string_view host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return std::string{host};
}

std::string bracketed(std::string_view host) {
  std::string text{host};
  return text.find(':') == std::string::npos ? text : "[" + text + "]";
}

bool is_loopback(std::string_view host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

}  // namespace openshell::cli

#include "programs/gateway/ca_bundle.hpp"

#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "observability/text.hpp"
#include "pki/certificate.hpp"

namespace openshell::gateway {

absl::StatusOr<std::string> read_ca_bundle(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return absl::InvalidArgumentError(cat("failed to read ", path));
  if (!S_ISREG(facts.st_mode)) return absl::InvalidArgumentError(cat(path, " is not a regular file"));
  if (static_cast<std::size_t>(facts.st_size) > kMaxCaBundleBytes) return absl::InvalidArgumentError(cat(path, " is larger than 1 MiB"));
  std::ifstream file{path, std::ios::binary};
  std::string pem{std::istreambuf_iterator<char>{file}, {}};
  if (!file.is_open() || file.bad()) return absl::InvalidArgumentError(cat("failed to read ", path));
  for (auto begin = pem.find("-----BEGIN "); begin != std::string::npos; begin = pem.find("-----BEGIN ", begin + 1)) {
    if (pem.compare(begin, 27, "-----BEGIN CERTIFICATE-----") != 0)
      return absl::InvalidArgumentError("PEM bundle contains a non-certificate block");
  }
  if (!pki::certificates_from_pem(pem).ok()) return absl::InvalidArgumentError("PEM bundle does not contain a certificate");
  return pem;
}

}  // namespace openshell::gateway

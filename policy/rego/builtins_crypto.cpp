#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/operands.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>

namespace openshell::policy::rego {
namespace {

using Algorithm = const EVP_MD* (*)();

template <Algorithm Digest>
BuiltinResult digest(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  const auto text = a[0].text();
  if (auto status = context.charge(text.size() / 4096); !status.ok()) return status;
  std::array<unsigned char, EVP_MAX_MD_SIZE> out{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), out.data(), &size, Digest(), nullptr) != 1) return failure("the hash is not available");
  return Value::string(hex_text({reinterpret_cast<const char*>(out.data()), size}));
}

template <Algorithm Digest>
BuiltinResult hmac(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0, 1}); !status.ok()) return status;
  const auto text = a[0].text();
  const auto key = a[1].text();
  if (auto status = context.charge(text.size() / 4096); !status.ok()) return status;
  std::array<unsigned char, EVP_MAX_MD_SIZE> out{};
  unsigned size = 0;
  if (HMAC(Digest(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data(),
           &size) == nullptr) {
    return failure("the hash is not available");
  }
  return Value::string(hex_text({reinterpret_cast<const char*>(out.data()), size}));
}

/// Takes the same time whatever differs.
BuiltinResult hmac_equal(QueryContext& /*context*/, Arguments a) {
  if (auto status = need_strings(a, {0, 1}); !status.ok()) return status;
  const auto one = a[0].text();
  const auto other = a[1].text();
  return Value::boolean(one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0);
}

}  // namespace

const BuiltinTable& crypto_builtins() {
  using namespace types;
  static const BuiltinTable table = {
      {"crypto.hmac.equal", {string(), string()}, boolean(), hmac_equal},
      {"crypto.hmac.md5", {string(), string()}, string(), hmac<EVP_md5>},
      {"crypto.hmac.sha1", {string(), string()}, string(), hmac<EVP_sha1>},
      {"crypto.hmac.sha256", {string(), string()}, string(), hmac<EVP_sha256>},
      {"crypto.hmac.sha512", {string(), string()}, string(), hmac<EVP_sha512>},
      {"crypto.md5", {string()}, string(), digest<EVP_md5>},
      {"crypto.sha1", {string()}, string(), digest<EVP_sha1>},
      {"crypto.sha256", {string()}, string(), digest<EVP_sha256>},
  };
  return table;
}

}  // namespace openshell::policy::rego

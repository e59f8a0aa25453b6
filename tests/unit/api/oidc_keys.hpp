// Keys of a made-up issuer: JWK of the public half, and tokens signed with the private one.
#pragma once

#include <absl/strings/escaping.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>

#include <boost/json.hpp>
#include <memory>
#include <string>

namespace openshell::oidc {

inline std::string base64url(const std::string& text) { return absl::WebSafeBase64Escape(text); }

class IssuerKey {
 public:
  explicit IssuerKey(const std::string& algorithm, unsigned rsa_bits = 2048) : algorithm_{algorithm} {
    EVP_PKEY* made = algorithm == "EdDSA"  ? EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")
                     : algorithm[0] == 'E' ? EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", algorithm == "ES256" ? "P-256" : "P-384")
                                           : EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", static_cast<std::size_t>(rsa_bits));
    key_.reset(made, EVP_PKEY_free);
  }

  boost::json::object jwk(const std::string& kid) const {
    if (algorithm_ == "EdDSA") {
      std::string raw(32, '\0');
      std::size_t size = raw.size();
      EVP_PKEY_get_raw_public_key(key_.get(), reinterpret_cast<unsigned char*>(raw.data()), &size);
      return {{"kty", "OKP"}, {"crv", "Ed25519"}, {"kid", kid}, {"alg", "EdDSA"}, {"use", "sig"}, {"x", base64url(raw)}};
    }
    if (algorithm_[0] == 'E') {
      const int size = coordinate();
      return {{"kty", "EC"},
              {"crv", size == 32 ? "P-256" : "P-384"},
              {"kid", kid},
              {"x", base64url(number(OSSL_PKEY_PARAM_EC_PUB_X, size))},
              {"y", base64url(number(OSSL_PKEY_PARAM_EC_PUB_Y, size))}};
    }
    return {{"kty", "RSA"},
            {"kid", kid},
            {"alg", algorithm_},
            {"n", base64url(number(OSSL_PKEY_PARAM_RSA_N))},
            {"e", base64url(number(OSSL_PKEY_PARAM_RSA_E))}};
  }

  /// `header` may say something else than the key does.
  std::string token(const boost::json::object& header, const boost::json::object& claims) const {
    const std::string text = base64url(boost::json::serialize(header)) + "." + base64url(boost::json::serialize(claims));
    return text + "." + base64url(sign(text));
  }
  std::string token(const std::string& kid, const boost::json::object& claims) const {
    return token({{"alg", algorithm_}, {"kid", kid}, {"typ", "JWT"}}, claims);
  }

 private:
  int coordinate() const { return algorithm_ == "ES256" ? 32 : 48; }

  std::string number(const char* name, int size = 0) const {
    BIGNUM* value = nullptr;
    EVP_PKEY_get_bn_param(key_.get(), name, &value);
    std::string out(static_cast<std::size_t>(size == 0 ? BN_num_bytes(value) : size), '\0');
    BN_bn2binpad(value, reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(out.size()));
    BN_free(value);
    return out;
  }

  std::string sign(const std::string& text) const {
    const char* digest = algorithm_ == "EdDSA"         ? nullptr
                         : algorithm_.ends_with("256") ? "SHA256"
                         : algorithm_.ends_with("384") ? "SHA384"
                                                       : "SHA512";
    EVP_MD_CTX* context = EVP_MD_CTX_new();
    EVP_PKEY_CTX* options = nullptr;
    EVP_DigestSignInit_ex(context, &options, digest, nullptr, nullptr, key_.get(), nullptr);
    if (algorithm_[0] == 'P') {
      EVP_PKEY_CTX_set_rsa_padding(options, RSA_PKCS1_PSS_PADDING);
      EVP_PKEY_CTX_set_rsa_pss_saltlen(options, RSA_PSS_SALTLEN_DIGEST);
    }
    std::size_t size = 0;
    const auto* data = reinterpret_cast<const unsigned char*>(text.data());
    EVP_DigestSign(context, nullptr, &size, data, text.size());
    std::string out(size, '\0');
    EVP_DigestSign(context, reinterpret_cast<unsigned char*>(out.data()), &size, data, text.size());
    out.resize(size);
    EVP_MD_CTX_free(context);
    return algorithm_[0] == 'E' && algorithm_ != "EdDSA" ? raw_of(out) : out;
  }

  std::string raw_of(const std::string& der) const {
    const auto* data = reinterpret_cast<const unsigned char*>(der.data());
    ECDSA_SIG* signature = d2i_ECDSA_SIG(nullptr, &data, static_cast<long>(der.size()));
    std::string out(static_cast<std::size_t>(2 * coordinate()), '\0');
    auto* bytes = reinterpret_cast<unsigned char*>(out.data());
    BN_bn2binpad(ECDSA_SIG_get0_r(signature), bytes, coordinate());
    BN_bn2binpad(ECDSA_SIG_get0_s(signature), bytes + coordinate(), coordinate());
    ECDSA_SIG_free(signature);
    return out;
  }

  std::string algorithm_;
  std::shared_ptr<EVP_PKEY> key_;
};

inline std::string key_set(const std::vector<boost::json::object>& keys) {
  boost::json::array list;
  for (const auto& key : keys) list.push_back(key);
  return boost::json::serialize(boost::json::object{{"keys", list}});
}

}  // namespace openshell::oidc

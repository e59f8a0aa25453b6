#pragma once

#include <absl/status/statusor.h>

#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace google::protobuf {
class Timestamp;
}

namespace openshell::cli {

enum class Format { table, yaml, json };

/// Two-space indent and a newline at the end; keys sorted by bytes.
std::string to_json_text(const boost::json::value& document);
/// The same structure as YAML.
std::string to_yaml_text(const boost::json::value& document);
/// Prints the document to stdout. `format` is json or yaml.
void print_document(const boost::json::value& document, Format format);

/// Rows under a header, columns separated by two blanks, no blanks at line ends.
std::string to_table(const std::vector<std::vector<std::string>>& rows);

/// `YYYY-MM-DD HH:MM:SS` in UTC; `-` where there is no time or one before 1970.
std::string show_time(const google::protobuf::Timestamp& time);
/// RFC 3339 in UTC with milliseconds; empty where there is no time.
std::string rfc3339(const google::protobuf::Timestamp& time);
std::int64_t epoch_ms(const google::protobuf::Timestamp& time);
/// First 12 characters, the whole text if shorter.
std::string short_hash(const std::string& hash);

}  // namespace openshell::cli

/* Ends at once: what is left is the price of starting a program. */
int main(void) { return 0; }
